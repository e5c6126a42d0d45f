package rounding

import (
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/testrows"
	"github.com/lowbit-go/gq/packing"
)

// TestFractionsSQNR checks that fractional zero points lose less than integer ones at the same bytes.
func TestFractionsSQNR(t *testing.T) {
	const k = 1024
	x := testrows.Gaussian(7, 64*k)
	for bits, gain := range map[int]float64{2: 0.9, 3: 0.7, 4: 0.6, 5: 0.5, 6: 0.4} {
		s := Scheme{Bits: bits, Group: 32, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmSearch}
		whole := searchSQNR(t, s, x, k, true)
		s.Fractions = true
		if got := searchSQNR(t, s, x, k, true); got < whole+gain {
			t.Errorf("%d bits: %.2f dB, %.2f dB with integer zero points, want %.1f more", bits, got, whole, gain)
		}
	}
}
