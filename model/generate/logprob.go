package generate

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/model/internal/rowmath"
	"github.com/lowbit-go/gq/model/tokenizer"
)

// scorer computes logarithms of probabilities. Their bits are the same on every CPU.
type scorer struct {
	logits []float32
	exp    []float64
	shift  float64 // logarithm of the sum of e^logit
	best   []candidate
}

// set reads logits, and finds the n likeliest tokens. A NaN or +Inf is an error.
func (s *scorer) set(logits []float32, n int) error {
	best, err := likeliest(logits)
	if err != nil {
		return err
	}
	s.logits = append(s.logits[:0], logits...) // a Sampler changes them
	sum := rowmath.Sets.Chosen().ExpSum(buffer.Grow(&s.exp, len(logits)), logits, logits[best])
	s.shift = float64(logits[best]) + detmath.Log(sum)
	s.best = likeliestN(s.best[:0], logits, n)
	return nil
}

// logprob returns the natural logarithm of a token's probability.
func (s *scorer) logprob(id int32) float64 { return float64(s.logits[id]) - s.shift }

// top returns the likeliest tokens.
func (s *scorer) top(t *tokenizer.Tokenizer) []Alternative {
	list := make([]Alternative, len(s.best))
	for i, c := range s.best {
		list[i] = Alternative{c.id, t.Bytes(c.id), s.logprob(c.id)}
	}
	return list
}
