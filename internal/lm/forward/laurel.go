package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
)

// laurel is a linear path of low rank beside attention: x + norm(right(left(x))) (Menghani et al.,
// LAUREL, arXiv:2411.07501).
type laurel struct {
	whole
	left, right *linear
	by          *norm
}

func (l *laurel) stages() [][]Group { return [][]Group{{groupOf(l.left)}, {groupOf(l.right)}} }

func (l *laurel) memory(s *Session, r *record, m int) []size {
	return []size{{&r.act, m * l.left.spec.rows}, {&r.projected, m * s.m.config.HiddenSize}}
}

func (l *laurel) run(s *Session, r *record, dst, x []float32, m int) {
	low, raw := buffer.Grow(&r.act, m*l.left.spec.rows), buffer.Grow(&r.projected, m*s.m.config.HiddenSize)
	s.multiply(low, x, m, l.left)
	s.multiply(raw, low, m, l.right)
	s.norm(dst, raw, l.by, m)
	addTo(dst[:len(raw)], x)
}

func (l *laurel) gradientSizes(t *Tape, n int) []size {
	return []size{{&t.back.dgate, n * l.left.spec.rows}}
}

func (l *laurel) backward(t *Tape, r *record, g *Gradients, dy []float32, _ bool) {
	b := &t.back
	t.norm(g, l.by, b.dback, dy, r.projected, t.tokens(), false)
	t.through(g, l.right, b.dgate, r.act, b.dback, r.projected, false)
	t.through(g, l.left, b.dnormed, r.in, b.dgate, r.act, false)
	addTo(b.dnormed, dy)
}
