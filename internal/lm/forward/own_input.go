package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// ownInput is the part that reads the layer's own input p of each token, from the side:
// project(f(gate(x)) p).
type ownInput struct {
	unfolded
	gate, project *linear
	width         int
	at            int // where p begins in a row of the side
}

// loadOwnInput opens the part of the next layer, and the norm of its outputs.
func (m *Model) loadOwnInput(at string) (p *ownInput, post *norm, err error) {
	h, n := m.config.HiddenSize, m.side.perInputs
	p = &ownInput{width: n, at: m.side.inputs + len(m.layers)*n}
	if p.gate, err = m.linear(m.spec(at, arch.PerLayerGate, n, h)); err != nil {
		return nil, nil, err
	}
	if p.project, err = m.linear(m.spec(at, arch.PerLayerProjection, h, n)); err != nil {
		return nil, nil, err
	}
	post, err = m.loadNorm(at+m.config.NameOf(arch.PerLayerNorm)+".weight", h)
	return p, post, err
}

func (p *ownInput) last() *linear { return p.project }
func (p *ownInput) stages() [][]Group {
	return [][]Group{{groupOf(-1, p.gate)}, {groupOf(-1, p.project)}}
}
func (p *ownInput) scratch(s *Session, m int) []size {
	return []size{{&s.gate, m * p.width}, {&s.up, m * p.width}}
}

// copyInputs copies the inputs of m rows of a pass.
func (p *ownInput) copyInputs(s *Session, dst []float32, m int) {
	for t := range m {
		copy(dst[t*p.width:], s.m.side.row(s.side, t, p.at, p.width))
	}
}

func (p *ownInput) forward(s *Session, dst, x []float32, m int) error {
	gate, own := buffer.Grow(&s.gate, m*p.width), buffer.Grow(&s.up, m*p.width)
	if err := s.multiply(gate, x, m, p.gate); err != nil {
		return err
	}
	p.copyInputs(s, own, m)
	s.activate(gate, own)
	return s.multiply(dst, gate, m, p.project)
}

func (p *ownInput) recordSizes(_ *Tape, r *record, n int) []size {
	n *= p.width
	return []size{{&r.gate, n}, {&r.up, n}, {&r.act, n}}
}

func (p *ownInput) record(t *Tape, r *record, dst, x []float32) error {
	n := t.tokens()
	gate, up, act := r.gate[:n*p.width], r.up[:n*p.width], r.act[:n*p.width]
	if err := t.s.multiply(gate, x, n, p.gate); err != nil {
		return err
	}
	p.copyInputs(t.s, up, n)
	copy(act, gate)
	t.s.activate(act, up)
	if dst == nil {
		return nil
	}
	return t.s.multiply(dst, act, n, p.project)
}

func (p *ownInput) gradientSizes(t *Tape, n int) []size {
	return []size{{&t.back.dgate, n * p.width}, {&t.back.dup, n * p.width}}
}

func (p *ownInput) backward(t *Tape, r *record, g *Gradients, dy []float32, input bool) error {
	return p.inputGradients(t, r, g, t.back.dnormed, r.in, dy, r.out)
}

// inputGradients computes the gradients dx of the inputs x, and adds those of the layer's own inputs
// to the side's, from the gradients dy of the outputs y.
func (p *ownInput) inputGradients(t *Tape, r *record, g *Gradients, dx, x, dy, y []float32) error {
	b, n := &t.back, t.tokens()
	dgate, dup := b.dgate[:n*p.width], b.dup[:n*p.width]
	if err := t.through(g, p.project, dup, r.act, dy, y); err != nil {
		return err
	}
	t.s.split(n*p.width, 8, func(_, from, to int) {
		t.m.gateBackward(dgate[from:to], dup[from:to], dup[from:to], r.gate[from:to], r.up[from:to])
	})
	for token := range n {
		to := t.m.side.row(b.dside, token, p.at, p.width)
		for i, v := range dup[token*p.width:][:p.width] {
			to[i] += v
		}
	}
	return t.through(g, p.gate, dx, x, dgate, r.gate)
}
