package rounding

import (
	"hash/crc32"
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/packing"
)

// TestFractionsSQNR checks that fractional zero points lose less than integer ones at the same
// bytes.
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

// TestFractionsOneSided: groups of weights far from 0 on one side lose no more than with integer
// zero points, though the best grid does not hold 0.
func TestFractionsOneSided(t *testing.T) {
	const k = 512
	for _, sign := range []float32{1, -1} {
		x := testrows.Gaussian(11, 8*k)
		for i, v := range x {
			x[i] = sign * (3 + v/2)
		}
		for _, bits := range []int{2, 3, 4, 6} {
			s := Scheme{Bits: bits, Group: 32, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmSearch}
			whole := searchSQNR(t, s, x, k, true)
			s.Fractions = true
			if got := searchSQNR(t, s, x, k, true); got < whole-0.01 {
				t.Errorf("%d bits, sign %g: %.2f dB, %.2f dB with integer zero points", bits, sign, got, whole)
			}
		}
	}
}

// TestFractionsBits compares with results from another CPU: they are the same everywhere.
func TestFractionsBits(t *testing.T) {
	const k = 320
	sum := crc32.NewIEEE()
	for bits := 1; bits < 8; bits++ {
		x, rng := make([]float32, k), detmath.Source(bits)
		for i := range x { // exact: no logarithms, whose last bit may differ
			x[i] = float32(int16(rng.Next()>>48)/4+int16(rng.Next()>>48)/4+int16(rng.Next()>>48)/4) / 8192
		}
		s := Scheme{Bits: bits, Group: 32, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16, Algorithm: gqf.AlgorithmSearch, Fractions: true}
		r, err := quantizeRow(s, x)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range append(r.codes, r.zeros...) {
			sum.Write([]byte{byte(q)})
		}
		for _, s := range r.scales {
			u := math.Float32bits(s)
			sum.Write([]byte{byte(u >> 16), byte(u >> 24)}) // BF16
		}
	}
	if got := sum.Sum32(); got != 0x40cfe325 {
		t.Errorf("codes, zero points and scales have the checksum %#x", got)
	}
}
