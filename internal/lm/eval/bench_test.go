package eval

import (
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/forward"
)

// BenchmarkScore compares two predictions over a vocabulary of 128,256 tokens.
func BenchmarkScore(b *testing.B) {
	const vocab = 128256
	r := rand.New(rand.NewPCG(1, 2))
	s := &scorer{models: make([]*forward.Model, 2), predictions: make([]prediction, 2), vocab: vocab, logits: make([][]float32, 2)}
	for k := range s.logits {
		s.logits[k] = make([]float32, vocab)
		for i := range s.logits[k] {
			s.logits[k][i] = float32(r.NormFloat64() * 3)
		}
	}
	for b.Loop() {
		if _, err := s.score(0, 1, 0, 7); err != nil {
			b.Fatal(err)
		}
	}
}
