package arch

import (
	"math"
	"testing"
)

// TestQuantile holds quantiles to the tables of the normal distribution.
func TestQuantile(t *testing.T) {
	for p, want := range map[float64]float64{0.5: 0, 0.95: 1.6448536269514722, 0.05: -1.6448536269514722, 0.999: 3.090232306167813} {
		if got := quantile(p); math.Abs(got-want) > 1e-7 {
			t.Errorf("quantile(%v) is %v, want %v", p, got, want)
		}
	}
}
