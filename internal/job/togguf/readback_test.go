package togguf

import (
	"encoding/json"
	"math"
	"testing"
)

// Logits that are no numbers on both sides are equal; on one side they are a difference.
func TestDifference(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		want, got []float32
		d         float64
	}{
		{[]float32{1, 4}, []float32{1, 4}, 0},
		{[]float32{1, 4}, []float32{2, 4}, 0.25},
		{[]float32{0, 0}, []float32{0, 2}, 2},
		{[]float32{nan, nan}, []float32{nan, nan}, 0},
		{[]float32{nan, 4, inf, 2}, []float32{nan, 4, inf, 1}, 0.25},
		{[]float32{1, nan}, []float32{1, 4}, math.NaN()},
		{[]float32{1, 4}, []float32{1, nan}, math.NaN()},
		{[]float32{inf, 4}, []float32{-inf, 4}, math.Inf(1)},
		{[]float32{1, inf}, []float32{1, 4}, math.Inf(1)},
	} {
		if d := difference(c.want, c.got); d != c.d && !(math.IsNaN(d) && math.IsNaN(c.d)) {
			t.Errorf("%v, %v: %v, want %v", c.want, c.got, d, c.d)
		}
	}
}

// TestRerouted: positions of a mixture that differ are counted, and figures of the others are
// numbers, which JSON can hold.
func TestRerouted(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	want := []float32{1, 4, 1, 4, 1, 4, 1, 4} // four positions
	for _, c := range []struct {
		got      []float32
		experts  bool
		rerouted int // -1: an error
	}{
		{want, false, 0},
		{[]float32{1, 4, 1, nan, 1, inf, 1, 4.001}, true, 2},
		{[]float32{1, 4, 2, 4, 1, 4, 1, 4}, true, 1},
		{[]float32{1, 4, 2, 4, 1, 4, 1, 4}, false, -1},
		{[]float32{1, nan, 1, 4, 1, 4, 1, 4}, false, -1},
		{[]float32{2, 4, 2, 4, inf, 4, 1, 4}, true, -1},
	} {
		r, err := judge(want, c.got, 2, c.experts)
		if (err != nil) != (c.rerouted < 0) || err == nil && (r.Rerouted != c.rerouted || r.Difference > maxDifference || r.Tokens != 4) {
			t.Errorf("%v, experts %v: %+v, %v", c.got, c.experts, r, err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	}
}
