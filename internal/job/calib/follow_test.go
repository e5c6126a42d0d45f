package calib

import (
	"math"
	"testing"
)

func TestFollow(t *testing.T) {
	for _, test := range []struct {
		n, k int
		want float64
	}{
		{100, 64, .5}, {8192, 64, .5}, {16384, 64, .75}, {32768, 64, 1}, {1 << 30, 64, 1},
		{32768, 2048, .5 + math.Log2(32768./(12*2048))/4}, {32768, 8192, .5}, // few rows an input
	} {
		if got := follow(test.n, test.k); math.Abs(float64(got)-test.want) > 1e-6 {
			t.Errorf("%d rows of %d: %g, not %g", test.n, test.k, got, test.want)
		}
	}
}
