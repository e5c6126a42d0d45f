package forward

import (
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// mlp is a feed-forward network with a gate, down(f(gate(x)) up(x)), or plain, down(f(up(x))).
type mlp struct {
	gateUp []*linear // gate, up; or a single fused layer; or up alone
	down   *linear
	width  int // of gate and up
	plain  bool
	// interleaved: the rows of gate and up alternate in the fused layer.
	interleaved bool
	// sparse: gates are cut, see [arch.LayerConfig].
	sparse bool
	cutoff float64
}

// network opens the feed-forward network of a dense layer.
func (o *opener) network(l *arch.LayerConfig) *mlp {
	h, width := o.config.HiddenSize, l.Intermediate
	inputs := []linearSpec{o.spec(arch.Gate, width, h), o.spec(arch.Up, width, h)}
	if o.config.Facts.Has(arch.FusedGateUp) {
		inputs = []linearSpec{o.spec(arch.FusedGateUp, 2*width, h)}
	}
	f := o.gated(inputs, o.spec(arch.Down, h, width))
	f.sparse, f.cutoff = l.Sparse, l.Cutoff
	return f
}

func (o *opener) gated(gateUp []linearSpec, down linearSpec) *mlp {
	f := &mlp{width: down.cols, plain: o.config.Activation == arch.SquaredRelu}
	if f.plain {
		gateUp = gateUp[1:]
	}
	f.gateUp, f.down = o.all(gateUp...), o.open(down)
	return f
}

func (f *mlp) last() *linear { return f.down }

// fused reports whether gate and up are a single linear layer.
func (f *mlp) fused() bool { return len(f.gateUp) == 1 && !f.plain }

func (f *mlp) memory(s *Session, r *record, m int) []size { return f.sizes(s, &r.gatedRecord, m) }

func (f *mlp) sizes(s *Session, r *gatedRecord, rows int) []size {
	n := rows * f.width
	list := []size{{&r.gate, n}, {&r.up, n}}
	if f.fused() {
		list = append(list, size{&s.both, 2 * n})
	}
	if r.kept {
		list = append(list, size{&r.act, n})
	}
	if r.kept && f.sparse {
		list = append(list, size{&r.uncut, n})
	}
	return list
}

func (f *mlp) run(s *Session, r *record, dst, x []float32, m int) {
	f.rows(s, &r.gatedRecord, dst, x, 0, m)
}

// rows is run for m rows from row at of the record r on.
func (f *mlp) rows(s *Session, r *gatedRecord, dst, x []float32, at, m int) {
	own := func(b *[]float32) []float32 { return buffer.Grow(b, (at+m)*f.width)[at*f.width:] }
	gate, up := own(&r.gate), own(&r.up)
	s.gateUp(f, gate, up, x, m)
	if r.kept && f.sparse {
		copy(own(&r.uncut), gate)
	}
	s.cut(f, gate, m)
	act := gate
	if r.kept {
		act = own(&r.act)
		copy(act, gate)
	}
	s.activate(act, up)
	if dst != nil {
		s.multiply(dst, act, m, f.down)
	}
}

// cut subtracts a bound from the gates of m rows of a sparse network, and zeroes those below the
// bound.
func (s *Session) cut(f *mlp, gate []float32, m int) {
	if !f.sparse {
		return
	}
	n := f.width
	s.split(m, 4*n, func(_, from, to int) {
		for r := from; r < to; r++ {
			row := gate[r*n:][:n]
			mean, square := variance(row)
			bound := mean + float32(float32(math.Sqrt(square))*float32(f.cutoff))
			for i, v := range row {
				row[i] = max(0, v-bound)
			}
		}
	})
}

// cutBackward turns the gradients of cut gates into gradients of the gates. With the bound
// b = mean + c std of n gates g:
//
//	dg_i = d_i - sum(d) (1 + c (g_i - mean) / std) / n,  d: the gradients of the gates above b
func (t *Tape) cutBackward(f *mlp, dgate, gate, cut []float32, m int) {
	n := f.width
	t.s.split(m, 8*n, func(_, from, to int) {
		for r := from; r < to; r++ {
			d, row := dgate[r*n:][:n], gate[r*n:][:n]
			mean, square := variance(row)
			sum := 0.0
			for i, v := range cut[r*n:][:n] {
				if v <= 0 {
					d[i] = 0
				}
				sum += float64(d[i])
			}
			sum /= float64(n)
			slope := 0.0
			if square > 0 {
				slope = sum * f.cutoff / math.Sqrt(square)
			}
			for i, v := range row {
				d[i] -= float32(sum + float64(slope*float64(v-mean)))
			}
		}
	})
}

func (s *Session) gateUp(f *mlp, gate, up, x []float32, m int) {
	n := f.width
	if !f.fused() {
		s.multiply(gate, x, m, f.gateUp[0])
		if f.plain {
			return
		}
		s.multiply(up, x, m, f.gateUp[1])
		return
	}
	both := buffer.Grow(&s.both, 2*m*n)
	s.multiply(both, x, m, f.gateUp[0])
	rows := m
	if f.interleaved {
		rows *= n
	}
	apart(both, rows, gate[:m*n], up[:m*n])
}
