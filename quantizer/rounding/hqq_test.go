package rounding

import (
	"errors"
	"math"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/testrows"
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/packing"
)

// TestTorchAOSQNR compares with figures that TorchAO's formulas gave in the prototype,
// on 256 x 1024 normally distributed float32 weights (columns: symmetric,
// symmetric-no-clip, asymmetric, HQQ).
func TestTorchAOSQNR(t *testing.T) {
	testshared.SlowEmulated(t, "it compares figures, which are the same natively")
	const rows, cols = 256, 1024
	w := testrows.Gaussian(99, rows*cols)
	tests := []struct {
		bits, group int
		want        [4]float64 // dB
	}{
		{2, 32, [4]float64{6.52, 4.58, 7.81, 8.61}},
		{3, 32, [4]float64{13.84, 13.71, 15.23, 14.84}},
		{4, 32, [4]float64{20.45, 20.73, 21.84, 21.03}},
		{8, 32, [4]float64{45.06, 45.47, 46.45, 45.45}},
		{4, 128, [4]float64{19.08, 19.03, 19.92, 19.74}},
		{4, 1024, [4]float64{17.48, 17.25, 18.00, 19.11}},
	}
	d := make([]float32, len(w))
	for _, tt := range tests {
		for i, m := range []gqf.Mapping{gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric, gqf.MappingNone} {
			quantize := TorchAOAffine
			if m == gqf.MappingNone {
				quantize = TorchAOHQQScaleOnly
			}
			got, err := quantize(w, rows, cols, TorchAOOptions{Bits: tt.bits, Group: tt.group, Mapping: m})
			if err != nil {
				t.Fatal(err)
			}
			got.Dequantize(d)
			if db := sqnrOf(w, d); math.Abs(db-tt.want[i]) > 0.1 {
				t.Errorf("%d bits, group %d, column %d: %.2f dB, want %.2f", tt.bits, tt.group, i, db, tt.want[i])
			}
		}
	}
}

// sqnrOf is the SQNR in dB of d, the dequantized weights of w.
func sqnrOf(w, d []float32) float64 {
	var signal, noise float64
	for i := range w {
		signal += float64(w[i]) * float64(w[i])
		e := float64(w[i]) - float64(d[i])
		noise += e * e
	}
	return 10 * math.Log10(signal/noise)
}

// TestCompat checks that with Compat off every code is the best one for the stored scale.
func TestCompat(t *testing.T) {
	const rows, cols = 16, 256
	w := testrows.Gaussian(11, rows*cols)
	for i := range w {
		w[i] = roundTo(packing.BF16, w[i])
	}
	o := TorchAOOptions{Bits: 8, Group: 32, WeightDtype: packing.BF16}
	adjusted, err := TorchAOHQQScaleOnly(w, rows, cols, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Compat = true
	compat, err := TorchAOHQQScaleOnly(w, rows, cols, o)
	if err != nil {
		t.Fatal(err)
	}
	sameBits(t, "scale", adjusted.Scales, compat.Scales)
	better := 0
	for i, v := range w {
		s := adjusted.Scales[i/32]
		a, c := floats.Abs(v-float32(float32(adjusted.Codes[i])*s)), floats.Abs(v-float32(float32(compat.Codes[i])*s))
		if a > c {
			t.Errorf("weight %d: error %g, with Compat %g", i, a, c)
		} else if a < c {
			better++
		}
	}
	if better == 0 {
		t.Error("Compat changes nothing")
	}

	// Affine: a scale cast to BF16 moves, and some of the zero points with it.
	o = TorchAOOptions{Bits: 8, Group: 32, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16}
	moved := 0
	for _, o.Compat = range []bool{false, true} {
		got, err := TorchAOAffine(w, rows, cols, o)
		if err != nil {
			t.Fatal(err)
		}
		for g, z := range got.Zeros {
			lo := float32(0)
			for _, v := range w[g*32 : (g+1)*32] {
				lo = min(lo, v)
			}
			if want := -128 - roundToEven(lo/got.Scales[g]); float32(z) != want {
				if !o.Compat {
					t.Errorf("group %d: zero point %d, want %g", g, z, want)
				}
				moved++
			}
		}
	}
	if moved == 0 {
		t.Error("Compat changes no zero point")
	}
}

// TestTorchSum checks the order on lengths that a 32-column sum treats differently,
// against sums that are exact in float32 and one where the order shows.
func TestTorchSum(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 31, 32, 33, 40, 100, 512, 513, 8192, 8200, 140000} {
		x := make([]float32, n)
		want := float32(0)
		for i := range x {
			x[i] = float32(i % 13)
			want += x[i]
		}
		if got := torchSum(x); got != want {
			t.Errorf("%d values: %g, want %g", n, got, want)
		}
	}
	// 2^24 + 1 rounds to 2^24: the ones survive only if their own column gathers them.
	x := make([]float32, 128)
	x[0] = 0x1p24
	for i := 1; i < 128; i += 32 {
		x[i] = 1 // column 1
	}
	if got, want := torchSum(x), float32(0x1p24+4); got != want {
		t.Errorf("got %g, want %g", got, want)
	}
}

func TestTorchAOErrors(t *testing.T) {
	nan := float32(math.NaN())
	w := make([]float32, 128)
	tests := []struct {
		name       string
		w          []float32
		rows, cols int
		o          TorchAOOptions
		want       string
	}{
		{"bits", w, 2, 64, TorchAOOptions{Bits: 9}, "1 to 8"},
		{"no bits", w, 2, 64, TorchAOOptions{}, "1 to 8"},
		{"shape", w, 3, 64, TorchAOOptions{Bits: 4}, "3 x 64"},
		{"empty", nil, 0, 64, TorchAOOptions{Bits: 4}, "0 x 64"},
		{"group", w, 2, 64, TorchAOOptions{Bits: 4, Group: 48}, "48 does not divide 64"},
		{"negative group", w, 2, 64, TorchAOOptions{Bits: 4, Group: -32}, "-32"},
		{"weight dtype", w, 2, 64, TorchAOOptions{Bits: 4, WeightDtype: packing.F16}, "F32 and BF16"},
		{"mapping", w, 2, 64, TorchAOOptions{Bits: 4, Mapping: gqf.MappingFullRange}, "full-range"},
		{"not BF16", append(w[:127:127], 1.0000001), 2, 64, TorchAOOptions{Bits: 4, WeightDtype: packing.BF16}, "row 1, column 63"},
		{"NaN", append(w[:70:70], append([]float32{nan}, w[71:]...)...), 2, 64, TorchAOOptions{Bits: 4}, "column 6 is NaN"},
	}
	for _, tt := range tests {
		_, err := TorchAOAffine(tt.w, tt.rows, tt.cols, tt.o)
		if err == nil || !containsAll(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	var ne *NonFiniteError
	if _, err := TorchAOHQQScaleOnly([]float32{1, nan}, 1, 2, TorchAOOptions{Bits: 4}); !errors.As(err, &ne) || ne.Column != 1 {
		t.Errorf("got %v, want a NonFiniteError for column 1", err)
	}
}

// TestTorchAODegenerate checks that symmetric-no-clip at 1 bit gives TorchAO's results.
func TestTorchAODegenerate(t *testing.T) {
	w := []float32{-1, -2, 1, 2}
	got, err := TorchAOAffine(w, 2, 2, TorchAOOptions{Bits: 1, Mapping: gqf.MappingSymmetricNoClip})
	if err != nil {
		t.Fatal(err)
	}
	if !math.IsNaN(float64(got.Scales[0])) || !math.IsInf(float64(got.Scales[1]), 1) {
		t.Errorf("scales %v, want NaN and +Inf", got.Scales)
	}
	sameCodes(t, "code", got.Codes, []int8{0, 0, 0, 0})
}
