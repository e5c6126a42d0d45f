package forward

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/kernels"
)

// backward holds the gradients of a layer, for all tokens of all sequences.
type backward struct {
	dx         []float32 // [tokens][hidden]: of the hidden states
	dback      []float32 // [tokens][hidden]: of a half's output before its post norm
	dnormed    []float32 // [tokens][hidden]: of a half's input behind its norm
	dfed       []float32 // [tokens][hidden]: of the feed-forward network's input, in parallel halves
	dheads     []float32 // [tokens][heads][dim]
	dq, dk, dv []float32
	dgate, dup []float32 // [rows][intermediate]
	dqGates    []float32 // [tokens][heads][dim]: of the gates of attention
	draw       []float32 // of the outputs of the input projections of a layer with a state
	joined     []float32 // gradients of fused outputs
	outputs    []float32 // fused outputs, if wanted
	drows      []float32 // [rows][hidden]: of the experts' inputs
	ddown      []float32 // [rows][hidden]: of the experts' outputs
	drouter    []float32 // [tokens][experts]: of the router's logits
	dweights   []float32 // [tokens][PerToken]: of the experts' weights
	dgates     []float32 // [tokens]: of the logits of the shared expert's factors
	logits     []float32 // of a block of tokens
	uncapped   []float32 // the logits before the soft cap

	inverse   []float32 // of the rows of a norm
	means     []float32 // of the rows of a norm that subtracts these
	gains     []float64 // sums of a norm's gradients
	partGains []float64 // the same of each part of a mixer and sequence
	float     []float32 // the same as float32
	tokens    []int
}

func (b *backward) sizes(t *Tape, tokens int) []size {
	c := &t.m.config
	h, nq, nkv := tokens*c.HiddenSize, tokens*c.Heads*c.HeadDim, tokens*c.KVHeads*c.HeadDim
	gates, rows := t.m.wide(tokens)
	logits := min(t.o.LogitRows, tokens) * c.VocabSize
	raw, inner := t.m.middle()
	list := []size{
		{&b.dx, h}, {&b.dback, h}, {&b.dnormed, h}, {&b.dheads, max(nq, tokens*inner)}, {&b.dq, nq}, {&b.dk, nkv}, {&b.dv, nkv}, {&b.dgate, gates}, {&b.dup, gates},
		{&b.logits, logits}, {&b.inverse, tokens * c.Heads}, {&b.float, t.m.widestNorm()},
	}
	if c.Parallel {
		list = append(list, size{&b.dfed, h})
	}
	joined := 0
	if c.Facts.Has(arch.FusedQKV) {
		joined = nq + 2*nkv
	}
	if c.AttentionGate {
		joined = 2 * nq
		list = append(list, size{&b.dqGates, nq})
	}
	if t.m.fusedGateUp() {
		joined = max(joined, 2*gates)
	}
	list = append(list, size{&b.joined, joined})
	if t.o.Outputs {
		list = append(list, size{&b.outputs, joined})
	}
	if raw > 0 {
		list = append(list, size{&b.draw, tokens * raw})
	}
	if t.o.Outputs || c.LogitSoftcap != 0 {
		list = append(list, size{&b.uncapped, logits})
	}
	if e := c.Experts; e != nil {
		list = append(list, size{&b.drows, rows * c.HiddenSize}, size{&b.ddown, rows * c.HiddenSize}, size{&b.drouter, tokens * e.Count}, size{&b.dweights, rows}, size{&b.dgates, tokens})
	}
	return list
}

func (m *Model) fusedGateUp() bool {
	for i := range m.layers {
		l := &m.layers[i]
		if l.Experts && len(l.experts[0].gateUp) == 1 || !l.Experts && len(l.mlp.gateUp) == 1 {
			return true
		}
	}
	return false
}

// widestNorm returns the largest number of gains of a norm.
func (m *Model) widestNorm() int {
	widest := 0
	for _, n := range m.norms {
		widest = max(widest, n.Width)
	}
	return widest
}

func (b *backward) grow(t *Tape) {
	allocate(b.sizes(t, t.tokens()))
	clear(buffer.Grow(&b.gains, t.m.widestNorm()))
}

// multiplyBack computes the gradients of a linear layer's inputs from the gradients of its outputs.
// If add is set, the result is added to dst.
func (t *Tape) multiplyBack(dst, dy []float32, m int, l *linear, add bool) error {
	rows, ok := l.op.(kernels.RowReader)
	if !ok {
		return fmt.Errorf("linear %q: the rows of %T cannot be read, which gradients need", l.name, l.op)
	}
	if err := t.transposed.Multiply(t.s.workspace, dst[:m*rows.Cols()], dy[:m*rows.Rows()], m, rows, add); err != nil {
		return fmt.Errorf("linear %q: %w", l.name, err)
	}
	return nil
}

// visit shows a linear layer's gradient for m tokens, from first on or the listed tokens, to the
// caller.
func (t *Tape) visit(g *Gradients, l *linear, first, m int, x, dy, y []float32, tokens []int) error {
	if g.Linear == nil {
		return nil
	}
	k, n := l.op.Cols(), l.op.Rows()
	v := &LinearGradient{Name: l.name, M: m, K: k, N: n, X: x[:m*k], DY: dy[:m*n], First: first, Tokens: tokens, t: t, linear: l}
	if t.o.Outputs {
		v.Y = y[:m*n]
	}
	return g.Linear(v)
}

// finishNorm shows the gradients of a norm's gains to the caller.
func (t *Tape) finishNorm(g *Gradients, n *norm) error {
	if g.Norm == nil || n.Tensor == "" {
		return nil
	}
	sums, gradient := t.back.gains[:n.Width], t.back.float[:n.Width]
	for i, v := range sums {
		gradient[i] = float32(v)
	}
	clear(sums)
	return g.Norm(n.Tensor, gradient)
}

// norm takes gradients back through a norm, or adds them to dst if there is no norm.
func (t *Tape) norm(g *Gradients, n *norm, dst, dy, x []float32, rows int, add bool) error {
	if n == nil {
		for i, v := range dy[:rows*t.m.config.HiddenSize] {
			dst[i] += v
		}
		return nil
	}
	t.normBackward(n, dst, dy, x, rows, g.Norm != nil && n.Tensor != "", add)
	return t.finishNorm(g, n)
}

// layerBackward replaces t.back.dx, the gradients of the recorded layer's outputs, by the gradients
// of its inputs; unless input is set, their values do not matter.
func (t *Tape) layerBackward(i int, g *Gradients, input bool) error {
	l, r, b, n := &t.m.layers[i], &t.record, &t.back, t.tokens()
	y := r.down
	if l.Experts {
		y = r.mixed
	}
	dback, err := t.branch(l.postMLP, g, y)
	if err != nil {
		return err
	}
	if l.Experts {
		err = t.expertsBackward(l, g, dback)
	} else {
		err = t.gatedBackward(&l.mlp, &r.gatedRecord, g, b.dnormed, dback, r.fed, 0, n, t.m.config.Intermediate, nil)
	}
	if err != nil {
		return err
	}
	if t.m.config.Parallel {
		copy(b.dfed, b.dnormed)
	} else if err := t.norm(g, l.attentionNorm, b.dx, b.dnormed, r.middle, n, true); err != nil {
		return err
	}

	if dback, err = t.branch(l.postAttention, g, r.attention); err != nil {
		return err
	}
	if err := t.visit(g, l.out, 0, n, t.outInput(l), dback, r.attention, nil); err != nil {
		return err
	}
	dheads := b.dheads
	if a := t.m.config.Latent; a != nil {
		dheads = buffer.Grow(&t.s.latent.dHeads, n*t.m.config.Heads*a.Value)
	}
	if err := t.multiplyBack(dheads, dback, n, l.out, false); err != nil {
		return err
	}
	input = input || g.Norm != nil
	if err := t.middleBackward(i, g, input); err != nil || !input {
		return err
	}
	for i, v := range b.dfed {
		b.dnormed[i] += v
	}
	return t.norm(g, l.inputNorm, b.dx, b.dnormed, r.x, n, true)
}

// middleBackward takes the gradients of the inputs of the output projection back to the layer's
// input.
func (t *Tape) middleBackward(i int, g *Gradients, input bool) error {
	l := &t.m.layers[i]
	if l.mixer != nil {
		return t.mixBackward(i, g, input)
	}
	if t.m.config.AttentionGate {
		t.gatesBackward()
	}
	if l.latent != nil {
		t.padBackward()
	}
	t.attentionBackward(i)
	if err := t.prepareBackward(l, g); err != nil {
		return err
	}
	return t.projectBackward(l, g, input)
}

// branch returns the gradients of the outputs y of half a layer, before their norm if there is one,
// given the gradients of the hidden states, t.back.dx.
func (t *Tape) branch(post *norm, g *Gradients, y []float32) ([]float32, error) {
	b, n, dback := &t.back, t.tokens(), t.back.dx
	if f := t.m.config.ResidualScale; f != 1 {
		copy(b.dback, dback)
		dback = b.dback
		scale(dback, f)
	}
	if post == nil {
		return dback, nil
	}
	return b.dback, t.norm(g, post, b.dback, dback, y, n, false)
}

// prepareBackward takes the gradients of the queries and keys back through scale, rotation and
// norm.
func (t *Tape) prepareBackward(l *layer, g *Gradients) error {
	c, r, b, n := &t.m.config, &t.record, &t.back, t.tokens()
	nq, nkv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	turn := func(q, k []float32, sign float32) {
		if l.Rope < 0 {
			return
		}
		t.s.split(n, 4*(nq+nkv), func(_, from, to int) {
			for token := from; token < to; token++ {
				for _, x := range [][]float32{q[token*nq:][:nq], k[token*nkv:][:nkv]} {
					for ; len(x) > 0; x = x[c.HeadDim:] {
						t.s.rotations[l.Rope].turn(x[c.RopeStart:], t.positions[token], sign)
					}
				}
			}
		})
	}
	norms := func(q, k []float32) error {
		if err := t.norm(g, l.qNorm, b.dq, b.dq, q, n*nq/l.qNorm.Width, false); err != nil {
			return err
		}
		return t.norm(g, l.kNorm, b.dk, b.dk, k, n*nkv/l.kNorm.Width, false)
	}
	t.s.split(n, nq, func(_, from, to int) {
		for token := from; token < to; token++ {
			scale(b.dq[token*nq:][:nq], float64(c.AttentionScale*c.QueryFactor(&l.LayerConfig, t.positions[token])))
		}
	})
	if c.QKNorm >= arch.RotatedNorms && l.qNorm != nil {
		// The attention's gradients are done: its queries and keys become the norms' inputs again.
		copy(r.q, r.rawQ)
		copy(r.k, r.rawK)
		turn(r.q, r.k, 1)
		if err := norms(r.q, r.k); err != nil {
			return err
		}
	}
	turn(b.dq, b.dk, -1)
	if c.QKNorm == arch.HeadNorms || c.QKNorm == arch.WholeNorms {
		return norms(r.rawQ, r.rawK)
	}
	return nil
}

func (t *Tape) projectBackward(l *layer, g *Gradients, input bool) error {
	if l.latent != nil {
		return t.latentBackward(l, g, input)
	}
	r, b, n := &t.record, &t.back, t.tokens()
	gradients, outputs := [][]float32{b.dq, b.dk, b.dv}, [][]float32{r.rawQ, r.rawK, r.v}
	if d := t.m.config.HeadDim; t.m.config.AttentionGate {
		gradients[0] = interleave(b.joined, b.dq, b.dqGates, d)
		if t.o.Outputs {
			outputs[0] = interleave(b.outputs, r.rawQ, r.gates, d)
		}
	}
	return t.fused(l.qkv, g, b.dnormed, r.normed, gradients, outputs, n, input, nil)
}

// fused computes the gradients of linear layers that share their input x of m rows, or of the
// single fused layer in their place, from the gradients of the outputs. If input is set, dx
// receives the gradients of x.
func (t *Tape) fused(list []*linear, g *Gradients, dx, x []float32, gradients, outputs [][]float32, m int, input bool, tokens []int) error {
	b := &t.back
	if len(list) < len(gradients) {
		dy := join(b.joined, gradients, m)
		gradients = [][]float32{dy}
		if t.o.Outputs {
			outputs = [][]float32{join(b.outputs, outputs, m)}
		}
	}
	for i := len(list) - 1; i >= 0; i-- {
		if err := t.visit(g, list[i], 0, m, x, gradients[i], outputs[i], tokens); err != nil {
			return err
		}
	}
	if !input {
		return nil
	}
	for i, l := range list {
		if err := t.multiplyBack(dx, gradients[i], m, l, i > 0); err != nil {
			return err
		}
	}
	return nil
}

func join(dst []float32, parts [][]float32, m int) []float32 {
	stride := 0
	for _, p := range parts {
		stride += len(p) / m
	}
	at := 0
	for _, p := range parts {
		n := len(p) / m
		for r := range m {
			copy(dst[r*stride+at:][:n], p[r*n:])
		}
		at += n
	}
	return dst[:m*stride]
}

// gatedBackward computes the gradients dx of m rows of a gated feed-forward network of this width,
// from row at of the record r on, given their inputs x and the gradients dy of their outputs.
func (t *Tape) gatedBackward(f *mlp, r *gatedRecord, g *Gradients, dx, dy, x []float32, at, m, width int, tokens []int) error {
	b, h := &t.back, t.m.config.HiddenSize
	row := func(s []float32, width int) []float32 { return s[at*width:][:m*width] }
	gate, up, act, dgate, dup := row(r.gate, width), row(r.up, width), row(r.act, width), row(b.dgate, width), row(b.dup, width)
	if err := t.visit(g, f.down, 0, m, act, dy, row(r.down, h), tokens); err != nil {
		return err
	}
	if err := t.multiplyBack(dup, dy, m, f.down, false); err != nil {
		return err
	}
	t.s.split(m*width, 8, func(_, from, to int) {
		t.m.gateBackward(dgate[from:to], dup[from:to], dup[from:to], gate[from:to], up[from:to])
	})
	gradients, outputs := [][]float32{dgate, dup}, [][]float32{gate, up}
	if f.interleaved {
		gradients = [][]float32{interleave(b.joined, dgate, dup, 1)}
		if t.o.Outputs {
			outputs[0] = interleave(b.outputs, gate, up, 1)
		}
	}
	return t.fused(f.gateUp, g, dx, x, gradients, outputs, m, true, tokens)
}

// headBackward computes the gradients of the hidden states behind the last layer from the loss.
func (t *Tape) headBackward(loss func(sequence, from, n int, logits []float32) error, g *Gradients) error {
	c, s, b := &t.m.config, t.s, &t.back
	h, head := c.HiddenSize, t.m.head
	for j, start := range t.starts[:len(t.starts)-1] {
		for from := start; from < t.starts[j+1]; from += t.o.LogitRows {
			n := min(t.o.LogitRows, t.starts[j+1]-from)
			x, logits := t.states[len(t.m.layers)][from*h:][:n*h], b.logits[:n*c.VocabSize]
			normed := t.record.normed[:n*h]
			s.norm(normed, x, t.m.norm, n)
			if err := s.multiply(logits, normed, n, head); err != nil {
				return err
			}
			copy(b.uncapped, logits)
			scale(logits, c.LogitScale)
			if c.LogitSoftcap != 0 {
				s.split(len(logits), 16, func(_, from, to int) { softcap(logits[from:to], float32(c.LogitSoftcap)) })
			}
			if err := loss(j, from-start, n, logits); err != nil {
				return err
			}
			if c.LogitSoftcap != 0 {
				s.split(len(logits), 16, func(_, from, to int) {
					softcapBackward(logits[from:to], b.uncapped[from:to], float32(c.LogitSoftcap/c.LogitScale))
				})
			}
			scale(logits, c.LogitScale)
			if err := t.visit(g, head, from, n, normed, logits, b.uncapped, nil); err != nil {
				return err
			}
			if err := t.multiplyBack(b.dnormed, logits, n, head, false); err != nil {
				return err
			}
			t.normBackward(t.m.norm, b.dx[from*h:][:n*h], b.dnormed[:n*h], x, n, g.Norm != nil, false)
		}
	}
	return t.finishNorm(g, t.m.norm)
}

// embeddingBackward shows the gradients of the looked-up rows to the caller.
func (t *Tape) embeddingBackward(g *Gradients) error {
	if g.Embedding == nil {
		return nil
	}
	c, dx := &t.m.config, t.back.dx
	scale(dx, c.EmbeddingScale)
	for j, from := range t.starts[:len(t.starts)-1] {
		if err := g.Embedding(j, dx[from*c.HiddenSize:t.starts[j+1]*c.HiddenSize]); err != nil {
			return err
		}
	}
	return nil
}
