package measure

import (
	"math"
	"testing"
)

// TestNonFiniteCalibration checks that the error names the first layer whose input is not finite.
func TestNonFiniteCalibration(t *testing.T) {
	c := &calibration{samples: map[string]*sample{}, rows: 4}
	for _, in := range []struct {
		name string
		x    []float32
	}{
		{"a", []float32{1, -math.MaxFloat32, 0, 1e-45}},
		{"b", []float32{1, 2, 3, float32(math.Inf(-1))}},
		{"c", []float32{float32(math.NaN()), 2, 3, 4}},
	} {
		c.take(in.name, in.x, 2, 2)
	}
	if c.bad != "b" {
		t.Errorf("blamed is %q", c.bad)
	}
	if len(c.samples) != 3 || c.samples["a"].m != 2 {
		t.Errorf("samples %v", c.samples)
	}
}
