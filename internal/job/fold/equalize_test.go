package fold

import (
	"math"
	"testing"
)

// TestDamp: a column's factor counts by its root, and beyond the factor of an outlier in
// proportion, in both directions and without a step.
func TestDamp(t *testing.T) {
	for _, c := range []struct{ v, want float64 }{
		{1, 1}, {1.44, 1.2}, {0.25 * 2.25, 0.75}, {2, math.Sqrt2}, {0.5, 1 / math.Sqrt2}, {4, 2 * math.Sqrt2}, {0.25, 0.25 * math.Sqrt2},
		{32, 16 * math.Sqrt2}, {1. / 32, math.Sqrt2 / 32},
	} {
		if got := damp(c.v); math.Abs(got/c.want-1) > 1e-15 {
			t.Errorf("%v becomes %v, want %v", c.v, got, c.want)
		}
	}
	for v := 0.01; v < 100; v *= 1.01 {
		if got := damp(v) * damp(1/v); math.Abs(got-1) > 1e-12 {
			t.Errorf("%v and its inverse become factors whose product is %v", v, got)
		}
		if up := damp(v*1.01) / damp(v); up < 1 || up > 1.0101 {
			t.Errorf("1%% above %v the factor grows by %v", v, up)
		}
	}
}
