package eval

import (
	"math"
	"testing"
)

// TestHugePerplexity: a perplexity beyond float64 stays finite, because JSON has no infinity.
func TestHugePerplexity(t *testing.T) {
	p := perplexityOf([]float64{800, 900}, []int{1, 1}, nil)
	if p.Perplexity != math.MaxFloat64 || p.StdErr != math.MaxFloat64 {
		t.Errorf("a perplexity beyond float64: %+v", p)
	}
}
