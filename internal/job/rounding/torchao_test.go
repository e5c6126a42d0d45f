package rounding

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// qparamsCase is one case of weight_qparams.json: TorchAO's own functions ran on
// weights and gave the rest (testdata/vectors/torchao, made from pytorch/ao 36027d82).
type qparamsCase struct {
	Algorithm   string `json:"algorithm"`
	Bits        int    `json:"bits"`
	Mapping     string `json:"mapping"`
	WeightDtype string `json:"weight_dtype"`
	ScaleDtype  string `json:"scale_dtype"`
	Kind        string `json:"kind"`
	N           int    `json:"n"`
	K           int    `json:"k"`
	GroupSize   int    `json:"group_size"`
	Weights     string `json:"weights_le_hex"`
	Scales      string `json:"scales_le_hex"`
	ZeroPoints  []int8 `json:"zero_points"`
	Codes       []int8 `json:"qvals"`
	Dequant     string `json:"dequant_le_hex"`
}

func (c *qparamsCase) name(i int) string {
	return fmt.Sprintf("%d_%s_%s_%db_g%d_%s_%s_%s", i, c.Algorithm, c.Mapping, c.Bits, c.GroupSize, c.WeightDtype, c.ScaleDtype, c.Kind)
}

func (c *qparamsCase) options() TorchAOOptions {
	o := TorchAOOptions{
		Bits: c.Bits, Group: c.GroupSize, Compat: true,
		WeightDtype: packing.F32, ScaleDtype: packing.ScaleF32,
	}
	switch c.Mapping {
	case "SYMMETRIC":
		o.Mapping = gqf.MappingSymmetric
	case "SYMMETRIC_NO_CLIPPING_ERR":
		o.Mapping = gqf.MappingSymmetricNoClip
	case "ASYMMETRIC":
		o.Mapping = gqf.MappingAsymmetric
	}
	if c.WeightDtype == "bf16" {
		o.WeightDtype = packing.BF16
	}
	if c.ScaleDtype == "bf16" {
		o.ScaleDtype = packing.ScaleBF16
	}
	return o
}

// readQparams returns the cases of choose_qparams_affine. The file's 46 cases of hqq_scale_only are
// left out: gq has no such algorithm.
func readQparams(t testing.TB) []qparamsCase {
	t.Helper()
	var cases []qparamsCase
	if err := json.Unmarshal(testshared.VectorsZst(t, "../../../testdata/vectors/torchao/weight_qparams.json.zst"), &cases); err != nil {
		t.Fatal(err)
	}
	cases = slices.DeleteFunc(cases, func(c qparamsCase) bool { return c.Algorithm == "hqq_scale_only" })
	if len(cases) != 264 {
		t.Fatalf("%d cases without hqq_scale_only, want 264", len(cases))
	}
	return cases
}

// floatsOf decodes little-endian values of dtype "f32" or "bf16".
func floatsOf(t testing.TB, dtype, s string) []float32 {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	var v []float32
	for len(b) > 0 {
		if dtype == "bf16" {
			v = append(v, floats.BF16ToF32(binary.LittleEndian.Uint16(b)))
			b = b[2:]
		} else {
			v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
			b = b[4:]
		}
	}
	return v
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d %s, want %d", len(got), what, len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s %d is %x, want %x", what, i, got[i], want[i])
		}
	}
}

func sameCodes(t *testing.T, what string, got, want []int8) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d %s, want %d", len(got), what, len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s %d is %d, want %d", what, i, got[i], want[i])
		}
	}
}

func TestTorchAOVectors(t *testing.T) {
	for i, c := range readQparams(t) {
		t.Run(c.name(i), func(t *testing.T) {
			w := floatsOf(t, c.WeightDtype, c.Weights)
			got, err := TorchAOAffine(w, c.N, c.K, c.options())
			if err != nil {
				t.Fatal(err)
			}
			sameBits(t, "scale", got.Scales, floatsOf(t, c.ScaleDtype, c.Scales))
			zeros := got.Zeros
			if zeros == nil {
				zeros = make([]int8, len(got.Scales))
			}
			sameCodes(t, "zero point", zeros, c.ZeroPoints)
			sameCodes(t, "code", got.Codes, c.Codes)
			d := make([]float32, len(w))
			got.Dequantize(d)
			sameBits(t, "dequantized weight", d, floatsOf(t, c.WeightDtype, c.Dequant))
		})
	}
}

// TestTorchAOSQNR compares with figures that TorchAO's formulas gave in the prototype,
// on 256 x 1024 normally distributed float32 weights.
func TestTorchAOSQNR(t *testing.T) {
	testshared.SlowEmulated(t, "it compares figures, which are the same natively")
	const rows, cols = 256, 1024
	w := testrows.Gaussian(99, rows*cols)
	tests := []struct {
		bits, group int
		want        [3]float64 // dB: symmetric, symmetric-no-clip, asymmetric
	}{
		{2, 32, [3]float64{6.52, 4.58, 7.81}},
		{3, 32, [3]float64{13.84, 13.71, 15.23}},
		{4, 32, [3]float64{20.45, 20.73, 21.84}},
		{8, 32, [3]float64{45.06, 45.47, 46.45}},
		{4, 128, [3]float64{19.08, 19.03, 19.92}},
		{4, 1024, [3]float64{17.48, 17.25, 18.00}},
	}
	d := make([]float32, len(w))
	for _, tt := range tests {
		for i, m := range []gqf.Mapping{gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric} {
			got, err := TorchAOAffine(w, rows, cols, TorchAOOptions{Bits: tt.bits, Group: tt.group, Mapping: m})
			if err != nil {
				t.Fatal(err)
			}
			got.Dequantize(d)
			if db := sqnrOf(w, d); math.Abs(db-tt.want[i]) > 0.1 {
				t.Errorf("%d bits, group %d, %s: %.2f dB, want %.2f", tt.bits, tt.group, m, db, tt.want[i])
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

// TestCompat checks that a scale's cast to BF16 moves some of the zero points, unless Compat is on.
func TestCompat(t *testing.T) {
	const rows, cols = 16, 256
	w := testrows.Gaussian(11, rows*cols)
	for i := range w {
		w[i] = roundTo(packing.BF16, w[i])
	}
	o := TorchAOOptions{Bits: 8, Group: 32, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleBF16}
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
	if _, err := TorchAOAffine([]float32{1, nan}, 1, 2, TorchAOOptions{Bits: 4}); !errors.As(err, &ne) || ne.Column != 1 {
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
