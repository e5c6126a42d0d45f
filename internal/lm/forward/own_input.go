package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
)

// ownInput reads the layer's own input p of each token, from the side: project(f(gate(x)) p).
type ownInput struct {
	whole
	gate, project *linear
	width         int
	at            int // where p begins in a row of the side
}

func (p *ownInput) stages() [][]Group {
	return [][]Group{{groupOf(p.gate)}, {groupOf(p.project)}}
}

func (p *ownInput) memory(_ *Session, r *record, m int) []size {
	return []size{{&r.gate, m * p.width}, {&r.up, m * p.width}, {&r.act, m * p.width}}
}

func (p *ownInput) run(s *Session, r *record, dst, x []float32, m int) {
	n := m * p.width
	gate, own, act := buffer.Grow(&r.gate, n), buffer.Grow(&r.up, n), buffer.Grow(&r.act, n)
	s.multiply(gate, x, m, p.gate)
	for t := range m {
		copy(own[t*p.width:], s.m.side.row(s.side, t, p.at, p.width))
	}
	copy(act, gate)
	s.activate(act, own)
	s.multiply(dst, act, m, p.project)
}

func (p *ownInput) gradientSizes(t *Tape, n int) []size {
	return []size{{&t.back.dgate, n * p.width}, {&t.back.dup, n * p.width}}
}

func (p *ownInput) backward(t *Tape, r *record, g *Gradients, dy []float32, _ bool) {
	p.gradients(t, r, g, r.in, dy, r.out)
}

// gradients computes the gradients of the inputs x, t.back.dnormed, and of the layer's own inputs,
// in the side, from the gradients dy of the outputs y.
func (p *ownInput) gradients(t *Tape, r *record, g *Gradients, x, dy, y []float32) {
	b, n := &t.back, t.tokens()
	dgate, dup := b.dgate[:n*p.width], b.dup[:n*p.width]
	t.through(g, p.project, dup, r.act, dy, y, false)
	t.s.split(n*p.width, 8, func(_, from, to int) {
		t.m.gateBackward(dgate[from:to], dup[from:to], dup[from:to], r.gate[from:to], r.up[from:to])
	})
	for token := range n {
		addTo(t.m.side.row(b.dside, token, p.at, p.width), dup[token*p.width:])
	}
	t.through(g, p.gate, b.dnormed, x, dgate, r.gate, false)
}

// addTo adds as many values of x to dst as dst has.
func addTo(dst, x []float32) {
	for i, v := range x[:len(dst)] {
		dst[i] += v
	}
}

// addTimes adds values of x times a factor.
func addTimes(dst, x []float32, factor float32) {
	for i, v := range x[:len(dst)] {
		dst[i] += float32(factor * v)
	}
}
