package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// laurel is a linear path of low rank beside attention: x + norm(right(left(x))) (Menghani et al.,
// LAUREL, arXiv:2411.07501).
type laurel struct {
	unfolded
	left, right *linear
	by          *norm
}

func (m *Model) loadLaurel(at string) (l *laurel, err error) {
	h, rank := m.config.HiddenSize, m.config.Laurel
	l = &laurel{}
	if l.left, err = m.linear(m.spec(at, arch.LaurelLeft, rank, h)); err != nil {
		return nil, err
	}
	if l.right, err = m.linear(m.spec(at, arch.LaurelRight, h, rank)); err != nil {
		return nil, err
	}
	l.by, err = m.loadNorm(at+m.config.NameOf(arch.LaurelNorm)+".weight", h)
	return l, err
}

func (l *laurel) stages() [][]Group {
	return [][]Group{{groupOf(-1, l.left)}, {groupOf(-1, l.right)}}
}

func (l *laurel) scratch(s *Session, m int) []size { return []size{{&s.gate, m * l.left.spec.rows}} }

func (l *laurel) forward(s *Session, dst, x []float32, m int) error {
	low := buffer.Grow(&s.gate, m*l.left.spec.rows)
	if err := s.multiply(low, x, m, l.left); err != nil {
		return err
	}
	if err := s.multiply(dst, low, m, l.right); err != nil {
		return err
	}
	s.norm(dst, dst, l.by, m)
	for i := range dst[:m*s.m.config.HiddenSize] {
		dst[i] += x[i]
	}
	return nil
}

func (l *laurel) recordSizes(t *Tape, r *record, n int) []size {
	return []size{{&r.act, n * l.left.spec.rows}, {&r.projected, n * t.m.config.HiddenSize}}
}

func (l *laurel) record(t *Tape, r *record, dst, x []float32) error {
	s, n := t.s, t.tokens()
	if err := s.multiply(r.act, x, n, l.left); err != nil {
		return err
	}
	if err := s.multiply(r.projected, r.act, n, l.right); err != nil {
		return err
	}
	s.norm(dst, r.projected, l.by, n)
	for i, v := range x {
		dst[i] += v
	}
	return nil
}

func (l *laurel) gradientSizes(t *Tape, n int) []size {
	return []size{{&t.back.dgate, n * l.left.spec.rows}}
}

func (l *laurel) backward(t *Tape, r *record, g *Gradients, dy []float32, input bool) error {
	b, n := &t.back, t.tokens()
	if err := t.norm(g, l.by, b.dback, dy, r.projected, n, false); err != nil {
		return err
	}
	if err := t.through(g, l.right, b.dgate, r.act, b.dback, r.projected); err != nil {
		return err
	}
	if err := t.through(g, l.left, b.dnormed, r.in, b.dgate, r.act); err != nil {
		return err
	}
	for i, v := range dy {
		b.dnormed[i] += v
	}
	return nil
}
