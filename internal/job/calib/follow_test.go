package calib

import (
	"math"
	"testing"
)

func TestFollow(t *testing.T) {
	for _, test := range []struct {
		stated float64
		n, k   int
		want   float64
	}{
		{0, 100, 64, .5}, {0, 8192, 64, .5}, {0, 16384, 64, .75}, {0, 32768, 64, 1}, {0, 1 << 30, 64, 1},
		{0, 32768, 2048, .5 + math.Log2(32768./(12*2048))/4}, {0, 32768, 8192, .5}, // few rows an input
		{.3, 32768, 64, .3}, {2, 10, 64, 2}, {-1, 32768, 64, 0},
	} {
		if got := follow(test.stated, test.n, test.k); math.Abs(float64(got)-test.want) > 1e-6 {
			t.Errorf("stated %g, %d rows of %d: %g, not %g", test.stated, test.n, test.k, got, test.want)
		}
	}
}
