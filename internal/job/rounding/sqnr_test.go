package rounding

import (
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// TestSQNR compares with a float32 prototype in another language on other random numbers: 524288
// normally distributed weights, BF16 scales.
func TestSQNR(t *testing.T) {
	testshared.SlowEmulated(t, "it compares figures, which are the same natively")
	const rows, k = 512, 1024
	x := testrows.Gaussian(2026, rows*k)
	tests := []struct {
		m    gqf.Mapping
		bits int
		want [2]float64 // dB, groups of 32 and of 128
	}{
		{gqf.MappingFullRange, 2, [2]float64{8.82, 7.44}},
		{gqf.MappingFullRange, 3, [2]float64{15.17, 13.63}},
		{gqf.MappingFullRange, 4, [2]float64{21.35, 19.73}},
		{gqf.MappingFullRange, 8, [2]float64{45.45, 43.83}},
		{gqf.MappingSymmetric, 2, [2]float64{6.55, 5.20}},
		{gqf.MappingSymmetric, 3, [2]float64{13.86, 12.48}},
		{gqf.MappingSymmetric, 4, [2]float64{20.49, 19.11}},
		{gqf.MappingSymmetric, 8, [2]float64{45.15, 43.73}},
		{gqf.MappingSymmetricNoClip, 2, [2]float64{4.56, 2.86}},
		{gqf.MappingSymmetricNoClip, 3, [2]float64{13.69, 11.88}},
		{gqf.MappingSymmetricNoClip, 4, [2]float64{20.74, 19.03}},
		{gqf.MappingSymmetricNoClip, 8, [2]float64{45.42, 43.80}},
		{gqf.MappingAsymmetric, 2, [2]float64{7.83, 5.97}},
		{gqf.MappingAsymmetric, 3, [2]float64{15.24, 13.32}},
		{gqf.MappingAsymmetric, 4, [2]float64{21.86, 19.95}},
		{gqf.MappingAsymmetric, 8, [2]float64{46.39, 44.55}},
	}
	for _, tt := range tests {
		for i, group := range []int{32, 128} {
			s := Scheme{Bits: tt.bits, Group: group, Mapping: tt.m, ScaleDtype: packing.ScaleBF16}
			rq, err := NewRowQuantizer(s, k)
			if err != nil {
				t.Fatal(err)
			}
			codes, scales, zeros := make([]int8, k), make([]float32, k/group), make([]int8, k/group)
			var acc vec.ErrorSum
			for r := range rows {
				if err := rq.Quantize(codes, scales, zeros, x[r*k:(r+1)*k], &acc); err != nil {
					t.Fatal(err)
				}
			}
			noise, signal := acc.Total()
			if got := 10 * math.Log10(signal/noise); math.Abs(got-tt.want[i]) > 0.1 {
				t.Errorf("%s: %.2f dB, want %.2f", s, got, tt.want[i])
			}
		}
	}
}

// TestZerosSQNR holds the search of integer zero points to the ratios, in dB, that it had when it
// tried 64 ranges of each group, on 65536 normally distributed weights in groups of 32.
func TestZerosSQNR(t *testing.T) {
	const rows, k, group = 64, 1024, 32
	x := testrows.Gaussian(2026, rows*k)
	for bits, want := range map[int]float64{2: 9.411, 3: 15.796, 4: 22.251, 5: 28.672, 6: 34.874, 8: 47.114} {
		s := Scheme{Bits: bits, Group: group, Mapping: gqf.MappingAsymmetric, Algorithm: gqf.AlgorithmSearch, ScaleDtype: packing.ScaleF32}
		rq, err := NewRowQuantizer(s, k)
		if err != nil {
			t.Fatal(err)
		}
		codes, scales, zeros := make([]int8, k), make([]float32, k/group), make([]int8, k/group)
		var acc vec.ErrorSum
		for r := range rows {
			if err := rq.Quantize(codes, scales, zeros, x[r*k:(r+1)*k], &acc); err != nil {
				t.Fatal(err)
			}
		}
		noise, signal := acc.Total()
		if got := 10 * math.Log10(signal/noise); got < want-0.005 {
			t.Errorf("%s: %.3f dB, less than %.3f", s, got, want)
		}
	}
}

// BenchmarkRowQuantizer measures a row of 2048 weights; ns/group is per group of 32.
// "scales" is this package's part of it, the rest is package vec's.
func BenchmarkRowQuantizer(b *testing.B) {
	x := testrows.Gaussian(7, 2048)
	for _, m := range allMappings {
		s := Scheme{Bits: 4, Group: 32, Mapping: m, ScaleDtype: packing.ScaleBF16}
		rq, err := NewRowQuantizer(s, len(x))
		if err != nil {
			b.Fatal(err)
		}
		codes, scales, zeros := make([]int8, len(x)), make([]float32, 64), make([]int8, 64)
		var acc vec.ErrorSum
		perGroup := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/group")
		}
		b.Run(m.String()+"/row", func(b *testing.B) {
			for b.Loop() {
				if err := rq.Quantize(codes, scales, zeros, x, &acc); err != nil {
					b.Fatal(err)
				}
			}
			perGroup(b)
		})
		b.Run(m.String()+"/scales", func(b *testing.B) {
			for b.Loop() {
				rq.idealScales(scales)
				if rq.storeScales(scales) >= 0 {
					b.Fatal("scale")
				}
				if m == gqf.MappingAsymmetric {
					rq.zeroPoints(zeros, scales)
				}
			}
			perGroup(b)
		})
	}
}
