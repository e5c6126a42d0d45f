package forward

import (
	"math"
	"slices"
	"testing"
)

// TestRoundBlock has the values that the formula of ONNX Runtime gives: 127 steps to the largest
// magnitude, to even in the middle.
func TestRoundBlock(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct{ x, want []float32 }{
		{[]float32{-254, 2, 1, 3, 5, 0}, []float32{-254, 2, 0, 4, 4, 0}},
		{[]float32{63.5, 0.2, 0.26, -63.4}, []float32{63.5, 0, 0.5, -63.5}},
		{[]float32{0, 0}, []float32{0, 0}},
		{[]float32{1, inf}, []float32{1, inf}},
	} {
		got := make([]float32, len(c.x))
		roundBlock(got, c.x)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, not %v", c.x, got, c.want)
		}
	}
	got := make([]float32, 2)
	if roundBlock(got, []float32{0.3, nan}); got[0] != 0.3 || got[1] == got[1] {
		t.Errorf("NaN: %v", got)
	}
}
