package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
)

// In models with a gate of attention, q has the rows of each head's queries, and then the rows of
// its gates. The sigmoid of a gate multiplies an output of attention.

// gatedQueries computes queries and gates of m rows.
func (s *Session) gatedQueries(a *attention, r *record, q, x []float32, m int) {
	nq, d := len(q)/m, a.HeadDim
	all, gates := buffer.Grow(&s.qkv, 2*m*nq), buffer.Grow(&r.gates, m*nq)
	s.multiply(all, x, m, a.qkv[0])
	apart(all, len(q)/d, q, gates)
}

// gatesBackward computes the gradients of gates, and turns the gradients of gated outputs into
// gradients of outputs.
func (t *Tape) gatesBackward(r *record) {
	b := &t.back
	n := len(r.gates)
	t.s.split(n, 32, func(_, from, to int) {
		for i := from; i < to; i++ {
			s, d := logistic(r.gates[i]), b.dheads[i]
			b.dqGates[i] = float32(float32(d*r.heads[i]) * float32(s*(1-s)))
			b.dheads[i] = float32(d * s)
		}
	})
}
