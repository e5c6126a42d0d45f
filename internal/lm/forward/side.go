package forward

import (
	"fmt"
	"math"
	"strings"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// side lays out what a token has beside its hidden states, a row of values from the first layer to
// the last: further streams of hidden states and the prediction of the first, the inputs of single
// layers, and the keys and values that later layers read.
type side struct {
	width  int
	inputs int         // where the inputs of layers begin
	lent   map[int]int // where the keys of a layer begin, by layer; the values follow

	streams   *streams       // or nil
	perLayer  *perLayerModel // or nil
	layers    int            // of the model, even if not all are open
	perInputs int            // values of a layer's own input
}

// perLayerModel computes the inputs of all layers.
type perLayerModel struct {
	name    string // of the table
	table   Embedding
	vocab   int
	project *linear
	norm    *norm
}

// streams computes further streams from the first, and a single one from all.
type streams struct {
	projections, outputs []*linear
}

// leastSquare is the least mean square of a stream before it gets the size of the first.
const leastSquare = 1e-5

// arrange lays out the side.
func (d *side) arrange(c *arch.ForwardConfig) {
	if c.AltUp != nil {
		d.width = c.AltUp.Streams * c.HiddenSize
	}
	d.inputs = d.width
	if c.PerLayer != nil {
		d.layers, d.perInputs = len(c.Layers), c.PerLayer.Width
		d.width += d.layers * d.perInputs
	}
	d.lent = map[int]int{}
	for i, l := range c.Layers {
		if _, known := d.lent[i-l.Borrow]; l.Borrow > 0 && !known {
			d.lent[i-l.Borrow] = d.width
			d.width += 2 * l.KVHeads * l.HeadDim
		}
	}
}

// side opens the tensors outside of layers that the side needs.
func (o *opener) side() {
	c, h, d := &o.config, o.config.HiddenSize, &o.Model.side
	if p := c.PerLayer; p != nil {
		own := &perLayerModel{name: o.name(arch.PerLayerEmbedding) + ".weight", vocab: p.Vocab}
		o.used[own.name] = true
		o.do(func() (err error) {
			own.table, err = o.source.embedding(own.name, p.Vocab, d.layers*p.Width)
			return err
		})
		own.project = o.linear(arch.PerLayerModel, d.layers*p.Width, h)
		own.norm = o.norm(arch.PerLayerModelNorm, p.Width)
		d.perLayer = own
	}
	if c.AltUp == nil {
		return
	}
	numbered := func(kind arch.Kind) (specs []linearSpec) {
		for i := range c.AltUp.Streams - 1 {
			spec := o.spec(kind, h, h)
			spec.name = strings.Replace(spec.name, "*", fmt.Sprint(i), 1)
			specs = append(specs, spec)
		}
		return specs
	}
	d.streams = &streams{o.all(numbered(arch.StreamProjections)...), o.all(numbered(arch.StreamOutputs)...)}
}

// row returns values of a token's row, from an offset on.
func (d *side) row(rows []float32, token, at, n int) []float32 {
	return rows[token*d.width+at:][:n]
}

// gather copies values of m rows, from an offset on, one behind the other.
func (d *side) gather(dst, rows []float32, m, at, n int) {
	for token := range m {
		copy(dst[token*n:][:n], d.row(rows, token, at, n))
	}
}

// beginSide computes the rows of tokens at the first layer from the scaled rows x of the embedding.
func (s *Session) beginSide(rows, x []float32, tokens []int32) {
	d, h, m := &s.m.side, s.m.config.HiddenSize, len(tokens)
	if p := d.perLayer; p != nil {
		n := d.layers * d.perInputs
		projected, own := buffer.Grow(&s.both, m*n), make([]float32, n)
		s.multiply(projected, x, m, p.project)
		scale(projected, 1/math.Sqrt(float64(h)))
		for t, id := range tokens {
			if int(id) >= p.vocab {
				id = 0
			}
			fail(p.table.Lookup(own, int(id)))
			scale(own, math.Sqrt(float64(d.perInputs)))
			to := d.row(rows, t, d.inputs, n)
			for at := 0; at < n; at += d.perInputs {
				rmsNorm(to[at:][:d.perInputs], projected[t*n+at:][:d.perInputs], p.norm.weights, p.norm.eps)
			}
			for i, v := range own {
				to[i] = float32((to[i] + v) * float32(math.Sqrt2/2))
			}
		}
	}
	if d.streams == nil {
		return
	}
	stream := buffer.Grow(&s.back, m*h)
	for i, l := range d.streams.projections {
		s.multiply(stream, x, m, l)
		s.split(m, 6*h, func(_, from, to int) {
			for t := from; t < to; t++ {
				resize(d.row(rows, t, i*h, h), stream[t*h:][:h], x[t*h:][:h])
			}
		})
	}
}

// resize writes x with the root mean square of another vector.
func resize(dst, x, as []float32) {
	size, own := rms(as, 0), rms(x, leastSquare)
	for i, v := range x {
		dst[i] = float32(v*size) / own
	}
}

// rms is the root mean square, or of least if the mean square is less.
func rms(x []float32, least float64) float32 { return float32(math.Sqrt(max(meanSquare(x), least))) }

// endSide makes a single stream of m rows behind the last layer, in place of x.
func (s *Session) endSide(x, rows []float32, m int) {
	d, h := &s.m.side, s.m.config.HiddenSize
	if d.streams == nil {
		return
	}
	in, out, sum := buffer.Grow(&s.normed, m*h), buffer.Grow(&s.back, m*h), append(s.both[:0], x[:m*h]...)
	s.both = sum
	for i, l := range d.streams.outputs {
		d.gather(in, rows, m, i*h, h)
		s.multiply(out, in, m, l)
		s.split(m, 8*h, func(_, from, to int) {
			for t := from; t < to; t++ {
				row := out[t*h:][:h]
				resize(row, row, x[t*h:][:h])
				addTo(sum[t*h:][:h], row)
			}
		})
	}
	n := float32(len(d.streams.outputs) + 1)
	for i, v := range sum {
		x[i] = v / n
	}
}

// Width is the number of values of a token between layers: see [LayerInput].
func (m *Model) Width() int { return m.config.HiddenSize + m.side.width }

// unpack returns the hidden states of m tokens between layers, and leaves their side in s.side.
func (s *Session) unpack(rows []float32, m int) []float32 {
	h, n := s.m.config.HiddenSize, s.m.side.width
	if n == 0 {
		return rows[:m*h]
	}
	x, side := buffer.Grow(&s.x, m*h), buffer.Grow(&s.side, m*n)
	s.m.unpack(x, side, rows)
	return x
}

// unpack divides rows of hidden states and side, pack joins them.
func (m *Model) unpack(x, side, rows []float32) {
	n := min(len(rows)/m.Width(), len(x)/m.config.HiddenSize)
	apart(rows, n, x[:n*m.config.HiddenSize], side[:n*m.side.width])
}

func (m *Model) pack(rows, x, side []float32) {
	n := min(len(rows)/m.Width(), len(x)/m.config.HiddenSize)
	join(rows, [][]float32{x[:n*m.config.HiddenSize], side[:n*m.side.width]}, n)
}

// ended returns the single stream of n tokens behind the last layer.
func (t *Tape) ended(rows []float32, n int) []float32 {
	x := t.s.unpack(rows, n)
	t.s.endSide(x, t.s.side, n)
	return x
}
