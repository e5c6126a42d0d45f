package model

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/buffer"
)

// Batch continues several sequences by one token each in a step, which reads the weights once for
// all sequences. Each sequence gets the same logits as in a Session of its own.
//
// A Batch is not for concurrent use.
type Batch struct {
	s   *Session
	max int
	all [][]cache // [sequence][layer]
	n   []int     // tokens of each sequence
}

// NewBatch makes this many empty sequences of at most maxTokens tokens. Each has keys and values
// like a Session.
func (m *Model) NewBatch(sequences, maxTokens int) *Batch {
	b := &Batch{s: m.NewSession(maxTokens), max: maxTokens, n: make([]int, sequences)}
	for range sequences {
		b.all = append(b.all, append([]cache(nil), b.s.caches...))
	}
	for _, r := range b.s.rotations {
		r.reach(maxTokens)
	}
	return b
}

// Reset empties a sequence.
func (b *Batch) Reset(sequence int) {
	b.n[sequence] = 0
	for i := range b.all[sequence] {
		b.all[sequence][i].reset()
	}
}

// Step appends tokens[i] to sequences[i], which are distinct, and writes the logits of the next
// tokens to logits, [len(sequences)][VocabSize].
func (b *Batch) Step(sequences []int, tokens []int32, logits []float32) error {
	s := b.s
	c := &s.m.config
	m := len(sequences)
	if len(tokens) != m || len(logits) != m*c.VocabSize || m == 0 {
		return fmt.Errorf("model: %d tokens and %d logits for %d sequences", len(tokens), len(logits), m)
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.batch, s.positions = s.batch[:0], s.positions[:0]
	for i, q := range sequences {
		switch {
		case b.n[q] >= b.max:
			return fmt.Errorf("model: sequence %d has all its %d tokens", q, b.max)
		case tokens[i] < 0 || int(tokens[i]) >= c.VocabSize:
			return fmt.Errorf("model: token %d: the vocabulary has %d tokens", tokens[i], c.VocabSize)
		}
		s.batch, s.positions = append(s.batch, b.all[q]), append(s.positions, b.n[q])
	}
	err := s.m.source.guard(func() error {
		x := buffer.Grow(&s.x, m*c.HiddenSize)
		if err := s.lookup(x, tokens); err != nil {
			return err
		}
		for i := range s.m.layers {
			if err := s.layer(i, x, m); err != nil {
				return err
			}
		}
		return s.logits(logits, x, m)
	})
	if err != nil {
		return err
	}
	for _, q := range sequences {
		b.n[q]++
	}
	return nil
}

// attendBatch computes the attention of rows of different sequences.
func (s *Session) attendBatch(i int, dst, q, k, v []float32, m int) error {
	c, l := &s.m.config, &s.m.layers[i]
	nq, nkv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	heads := buffer.Grow(&s.heads, m*nq)
	run := func(worker, row int) {
		p, own := s.positions[row], &s.batch[row][i]
		own.reach(p, p+1)
		s.prepare(l, q[row*nq:][:nq], k[row*nkv:][:nkv], p)
		own.store(p, k[row*nkv:][:nkv], v[row*nkv:][:nkv])
		for h := range c.KVHeads {
			s.attention.block(worker, own, heads, q, h, row, row+1, p-row, nq)
		}
	}
	if s.m.pool.Threads() == 1 || m == 1 {
		for row := range m {
			run(0, row)
		}
	} else {
		s.m.pool.Run(m, run)
	}
	return s.multiply(dst, heads, m, l.out)
}
