package tune

import "math"

// roundCode is the code at a position: the nearest integer, within the range of codes.
func roundCode(x float32, lo, hi int) int {
	return min(max(int(math.RoundToEven(float64(max(-300, min(x, 300))))), lo), hi)
}

// confine keeps the positions from .. to within half a step of the range of codes, so that a code at
// its end can come back.
func (t *matrix) confine(from, to int) {
	lo, hi := float32(t.lo)-.5, float32(t.hi)+.5
	for i := from; i < to; i++ {
		t.steps.x[i] = max(lo, min(t.steps.x[i], hi))
	}
}
