package forward

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels"
)

// backward holds the gradients of a layer, for all tokens of all sequences.
type backward struct {
	dx         []float32 // [tokens][hidden]: of the hidden states
	dside      []float32 // of the rows of the side
	drow       []float32 // of the values between layers, if these are more than hidden states
	dback      []float32 // [tokens][hidden]: of a block's output before its post norm
	dnormed    []float32 // [tokens][hidden]: of a block's input behind its norm
	dbeside    []float32 // [tokens][hidden]: the same of the blocks beside the block
	dheads     []float32 // [tokens][heads][dim]
	dq, dk, dv []float32
	dgate, dup []float32 // [rows][intermediate]
	dqGates    []float32 // [tokens][heads][dim]: of the gates of attention
	dcoefs     []float32 // of coefficients of streams
	dfed       []float32 // [tokens][hidden]: of the inputs of routers of streams
	draw       []float32 // of the outputs of the input projections of a layer with a state
	joined     []float32 // gradients of fused outputs
	outputs    []float32 // fused outputs, if wanted
	drows      []float32 // [rows][width]: of the experts' inputs
	ddown      []float32 // [rows][width]: of the experts' outputs
	dsums      []float32 // [tokens][width]: of the sums of their outputs, if these are latents
	dlatents   []float32 // [tokens][width]: of the latents that they read
	drouter    []float32 // [tokens][experts]: of the router's logits
	dweights   []float32 // [tokens][PerToken]: of the experts' weights
	dgates     []float32 // [tokens]: of the logits of the shared expert's factors
	logits     []float32 // of a block of tokens
	uncapped   []float32 // the logits before the soft cap

	inverse   []float32 // of the rows of a norm
	means     []float32 // of the rows of a norm that subtracts these; else 0
	gains     []float64 // sums of a norm's gradients
	partGains []float64 // the same of each part of a mixer and sequence
	float     []float32 // the same as float32
	tokens    []int
}

// gradientSizes is the memory of a layer's gradients, and of the lm_head's, for n tokens.
func (t *Tape) gradientSizes(n int) sizes {
	c, b, all := &t.m.config, &t.back, sizes{}
	h, logits, norms := n*c.HiddenSize, min(t.o.LogitRows, n)*c.VocabSize, n*max(c.Heads, t.m.side.layers)
	all.add(size{&b.dx, h}, size{&b.dback, h}, size{&b.dnormed, h}, size{&b.logits, logits}, size{&b.inverse, norms}, size{&b.means, norms}, size{&b.float, t.m.widestNorm()})
	if t.o.Outputs || c.LogitSoftcap != 0 {
		all.add(size{&b.uncapped, logits})
	}
	if t.m.parallel() {
		all.add(size{&b.dbeside, h})
	}
	if width := t.m.side.width; width > 0 {
		all.add(size{&b.dside, n * width}, size{&b.drow, n * t.m.Width()})
	}
	for block := range t.m.blocks {
		all.add(block.gradientSizes(t, n)...)
	}
	if !t.o.Outputs {
		delete(all, &b.outputs)
	}
	return all
}

func (f *mlp) gradientSizes(t *Tape, rows int) []size {
	b, n := &t.back, rows*f.width
	list := []size{{&b.dgate, n}, {&b.dup, n}}
	if f.fused() {
		list = append(list, size{&b.joined, 2 * n}, size{&b.outputs, 2 * n})
	}
	return list
}

func (l *mixture) gradientSizes(t *Tape, n int) []size {
	b, rows := &t.back, n*max(l.PerToken*l.width, t.m.config.HiddenSize)
	list := append(l.experts[0].gradientSizes(t, n*l.PerToken), size{&b.drows, rows}, size{&b.ddown, rows},
		size{&b.drouter, n * l.Count}, size{&b.dweights, n * l.PerToken}, size{&b.dgates, n})
	if l.in != nil {
		list = append(list, size{&b.dsums, n * l.width}, size{&b.dlatents, n * l.width})
	}
	if l.fed != nil {
		list = append(list, size{&b.dfed, n * t.m.config.HiddenSize})
	}
	if l.shared != nil {
		list = append(list, l.shared.gradientSizes(t, n)...)
	}
	return list
}

// widestNorm returns the largest number of gains of a norm.
func (m *Model) widestNorm() int {
	widest := 0
	for _, n := range m.norms {
		widest = max(widest, n.Width)
	}
	return widest
}

func (t *Tape) growGradients() {
	t.gradientSizes(t.tokens()).allocate()
	if t.m.side.width == 0 {
		t.back.drow = t.back.dx
	}
	clear(buffer.Grow(&t.back.gains, t.m.widestNorm()))
}

// multiplyBack computes the gradients of a linear layer's inputs from the gradients of its outputs.
// If add is set, the result is added to dst.
func (t *Tape) multiplyBack(dst, dy []float32, m int, l *linear, add bool) {
	rows, ok := l.op.(kernels.RowReader)
	if !ok {
		fail(fmt.Errorf("linear %q: the rows of %T cannot be read, which gradients need", l.name, l.op))
	}
	if err := t.transposed.Multiply(t.s.workspace, dst[:m*rows.Cols()], dy[:m*rows.Rows()], m, rows, add); err != nil {
		fail(fmt.Errorf("linear %q: %w", l.name, err))
	}
}

// visit shows a linear layer's gradient for m tokens, from first on or the listed tokens, to the
// caller.
func (t *Tape) visit(g *Gradients, l *linear, first, m int, x, dy, y []float32, tokens []int) {
	if g.Linear == nil {
		return
	}
	k, n := l.op.Cols(), l.op.Rows()
	v := &LinearGradient{Name: l.name, M: m, K: k, N: n, X: x[:m*k], DY: dy[:m*n], First: first, Tokens: tokens, t: t, linear: l}
	if t.o.Outputs {
		v.Y = y[:m*n]
	}
	fail(g.Linear(v))
}

// finishNorm shows the gradients of a norm's gains to the caller.
func (t *Tape) finishNorm(g *Gradients, n *norm) {
	if g.Norm == nil || n.Tensor == "" {
		return
	}
	sums, gradient := t.back.gains[:n.Width], t.back.float[:n.Width]
	for i, v := range sums {
		gradient[i] = float32(v)
	}
	clear(sums)
	fail(g.Norm(n.Tensor, gradient))
}

// norm takes gradients back through a norm, or adds them to dst if there is no norm.
func (t *Tape) norm(g *Gradients, n *norm, dst, dy, x []float32, rows int, add bool) {
	if n == nil {
		addTo(dst[:rows*t.m.config.HiddenSize], dy)
		return
	}
	t.normBackward(n, dst, dy, x, rows, g.Norm != nil && n.Tensor != "", add)
	t.finishNorm(g, n)
}

// through shows the gradients dy of the outputs y of a linear layer that reads x, and computes the
// gradients dx of x, or adds to dx.
func (t *Tape) through(g *Gradients, l *linear, dx, x, dy, y []float32, add bool) {
	n := t.tokens()
	t.visit(g, l, 0, n, x, dy, y, nil)
	t.multiplyBack(dx, dy, n, l, add)
}

// layerBackward replaces t.back.dx, the gradients of the recorded layer's outputs, by the gradients
// of its inputs; unless input is set, their values do not matter.
func (t *Tape) layerBackward(i int, g *Gradients, input bool) {
	blocks, b := t.m.layers[i].blocks, &t.back
	input = input || g.Norm != nil
	for j := len(blocks) - 1; j >= 0; j-- {
		own, r, first := &blocks[j], &t.records[j], j
		for blocks[first].beside {
			first--
		}
		scale(t.back.dx, own.times)
		wanted := input || first > 0
		own.backward(t, r, g, t.branch(own, g, r.out), wanted)
		if !wanted {
			continue
		}
		if j+1 < len(blocks) && blocks[j+1].beside {
			addTo(b.dnormed[:len(b.dbeside)], b.dbeside)
		}
		if own.replace {
			clear(b.dx)
		}
		if own.beside {
			copy(b.dbeside, b.dnormed)
		} else {
			t.norm(g, own.norm, b.dx, b.dnormed, r.x, t.tokens(), true)
		}
	}
}

func (f *mlp) backward(t *Tape, r *record, g *Gradients, dy []float32, input bool) {
	t.gatedBackward(f, &r.gatedRecord, g, t.back.dnormed, r.in, dy, r.out, 0, t.tokens(), nil, input)
}

// branch returns the gradients of the outputs y of a block's part, given the gradients of the
// hidden states, t.back.dx.
func (t *Tape) branch(own *block, g *Gradients, y []float32) []float32 {
	b, dback := &t.back, t.back.dx
	if f := own.scale; f != 1 {
		copy(b.dback, dback)
		dback = b.dback
		scale(dback, f)
	}
	if own.post == nil {
		return dback
	}
	t.norm(g, own.post, b.dback, dback, y, t.tokens(), false)
	return b.dback
}

// fused computes the gradients of linear layers that share their input x of m rows, or of the
// single fused layer in their place, from the gradients of the outputs. If input is set, dx
// receives the gradients of x.
func (t *Tape) fused(list []*linear, g *Gradients, dx, x []float32, gradients, outputs [][]float32, m int, input bool, tokens []int) {
	b := &t.back
	if len(list) < len(gradients) {
		dy := join(b.joined, gradients, m)
		gradients = [][]float32{dy}
		if t.o.Outputs {
			outputs = [][]float32{join(b.outputs, outputs, m)}
		}
	}
	for i := len(list) - 1; i >= 0; i-- {
		t.visit(g, list[i], 0, m, x, gradients[i], outputs[i], tokens)
	}
	if !input {
		return
	}
	for i, l := range list {
		t.multiplyBack(dx, gradients[i], m, l, i > 0)
	}
}

// join writes the m rows of all parts beside each other, and apart is the way back.
func join(dst []float32, parts [][]float32, m int) []float32 {
	all := dst[:0]
	for r := range m {
		for _, p := range parts {
			n := len(p) / m
			all = append(all, p[r*n:][:n]...)
		}
	}
	return all
}

func apart(all []float32, m int, parts ...[]float32) {
	for r := range m {
		for _, p := range parts {
			n := len(p) / m
			all = all[copy(p[r*n:][:n], all):]
		}
	}
}

// gatedBackward computes the gradients dx of the inputs x of m rows of a gated feed-forward
// network, from row at of the record r on, given the gradients dy of the outputs y.
func (t *Tape) gatedBackward(f *mlp, r *gatedRecord, g *Gradients, dx, x, dy, y []float32, at, m int, tokens []int, input bool) {
	b, width := &t.back, f.width
	row := func(s []float32) []float32 { return s[at*width:][:m*width] }
	gate, up, act, dgate, dup := row(r.gate), row(r.up), row(r.act), row(b.dgate), row(b.dup)
	t.visit(g, f.down, 0, m, act, dy, y, tokens)
	t.multiplyBack(dup, dy, m, f.down, false)
	t.s.split(m*width, 8, func(_, from, to int) {
		t.m.gateBackward(dgate[from:to], dup[from:to], dup[from:to], gate[from:to], up[from:to])
	})
	if f.sparse { // of a dense layer: the record begins with this row
		t.cutBackward(f, dgate, r.uncut, gate, m)
		gate = r.uncut
	}
	gradients, outputs := [][]float32{dgate, dup}, [][]float32{gate, up}
	if f.plain {
		gradients = gradients[:1]
	}
	if f.interleaved {
		gradients = [][]float32{join(b.joined, gradients, len(gate))}
		if t.o.Outputs {
			outputs[0] = join(b.outputs, outputs, len(gate))
		}
	}
	t.fused(f.gateUp, g, dx, x, gradients, outputs, m, input, tokens)
}

// headBackward computes the gradients of the hidden states behind the last layer from the loss.
func (t *Tape) headBackward(loss func(sequence, from, n int, logits []float32) error, g *Gradients) {
	c, s, b := &t.m.config, t.s, &t.back
	h, head := c.HiddenSize, t.m.head
	clear(b.dside)
	for j, start := range t.starts[:len(t.starts)-1] {
		for from := start; from < t.starts[j+1]; from += t.o.LogitRows {
			n := min(t.o.LogitRows, t.starts[j+1]-from)
			x := t.ended(t.states[len(t.m.layers)][from*t.m.Width():], n)
			logits := b.logits[:n*c.VocabSize]
			normed := t.back.dback[:n*h]
			s.norm(normed, x, t.m.norm, n)
			s.multiply(logits, normed, n, head)
			copy(b.uncapped, logits)
			s.capLogits(logits)
			fail(loss(j, from-start, n, logits))
			if c.LogitSoftcap != 0 {
				s.split(len(logits), 16, func(_, from, to int) {
					softcapBackward(logits[from:to], b.uncapped[from:to], float32(c.LogitSoftcap/c.LogitScale))
				})
			}
			scale(logits, c.LogitScale)
			t.visit(g, head, from, n, normed, logits, b.uncapped, nil)
			t.multiplyBack(b.dnormed, logits, n, head, false)
			t.normBackward(t.m.norm, b.dx[from*h:][:n*h], b.dnormed[:n*h], x, n, g.Norm != nil, false)
		}
	}
	t.finishNorm(g, t.m.norm)
	t.endSideBackward(g)
}

// embeddingBackward shows the gradients of the looked-up rows to the caller.
func (t *Tape) embeddingBackward(g *Gradients) {
	t.beginSideBackward(g)
	if g.Embedding == nil {
		return
	}
	c, dx := &t.m.config, t.back.dx
	scale(dx, c.EmbeddingScale)
	for j, from := range t.starts[:len(t.starts)-1] {
		fail(g.Embedding(j, dx[from*c.HiddenSize:t.starts[j+1]*c.HiddenSize]))
	}
}
