package conversion

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testrows"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// extremeRow is the row whose weights the tests of this file make small or large.
const extremeRow = 5

// extremes is a matrix whose row extremeRow holds the others' weights times a factor.
func extremes(factor float32) testTensor {
	x := testrows.Gaussian(11, 37*96)
	for i := range 96 {
		x[extremeRow*96+i] *= factor
	}
	return testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{37, 96}, value: func(i int) float32 { return x[i] }}
}

// writeExtremes runs a job over such a checkpoint.
func writeExtremes(t *testing.T, factor float32, r quantizer.Recipe) (*write.Report, error) {
	t.Helper()
	p, err := newPlan(t, writeCheckpoint(t, "", extremes(factor)), Options{Recipe: r})
	if err != nil {
		t.Fatal(err)
	}
	return p.Write(context.Background(), filepath.Join(t.TempDir(), "model.gqf"))
}

// TestSmallScales: a group whose scale would be too small to be a normal number gets the best codes
// there are, is counted, and fails no job.
func TestSmallScales(t *testing.T) {
	targets, err := quantizer.ParseTargets("llama.cpp-i8mm")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		factor float32
		recipe quantizer.Recipe
		groups int64
		least  float64 // relative error of the row's weights, root of the mean square
		most   float64
	}{
		{"normal f16", 1e-2, quantizer.Recipe{ScaleDtype: packing.ScaleF16, Group: new(32)}, 0, .05, .1},
		{"subnormal f16", 1e-4, quantizer.Recipe{ScaleDtype: packing.ScaleF16, Group: new(32)}, 3, .05, .1},
		{"subnormal f16, search", 1e-4, quantizer.Recipe{ScaleDtype: packing.ScaleF16, Group: new(32), Algorithm: gqf.AlgorithmSearch}, 3, .05, .1},
		{"subnormal f16, asymmetric", 1e-4, quantizer.Recipe{ScaleDtype: packing.ScaleF16, Group: new(32), Mapping: gqf.MappingAsymmetric}, 3, .05, .1},
		{"subnormal f16, half steps", 3e-5, quantizer.Recipe{ScaleDtype: packing.ScaleF16, Group: new(32), Bits: 2, Mapping: gqf.MappingHalfStep, Algorithm: gqf.AlgorithmSearch}, 3, .2, .4},
		{"target", 1e-4, quantizer.Recipe{Targets: targets, Group: new(32)}, 3, .05, .1},
		{"few steps of f16", 2e-7, quantizer.Recipe{ScaleDtype: packing.ScaleF16, Group: new(32)}, 3, .05, .4},
		{"below f16", 1e-9, quantizer.Recipe{ScaleDtype: packing.ScaleF16, Group: new(32)}, 3, 1, 1},
		{"normal bf16", 1e-36, quantizer.Recipe{ScaleDtype: packing.ScaleBF16, Group: new(32)}, 0, .05, .1},
		{"below bf16", 2e-38, quantizer.Recipe{ScaleDtype: packing.ScaleBF16, Group: new(32)}, 3, .1, .5},
		{"below f32 per channel", 2e-38, quantizer.Recipe{ScaleDtype: packing.ScaleF32, Group: new(quantizer.PerChannel), Mapping: gqf.MappingSymmetric}, 1, .1, .5},
		{"subnormal weights", 1e-40, quantizer.Recipe{ScaleDtype: packing.ScaleF32, Group: new(32)}, 3, 1, 1},
		{"a sixteenth is stored", 1e-37, quantizer.Recipe{ScaleDtype: packing.ScaleF32, Group: new(quantizer.PerChannel), Layouts: layoutsOf(t, "kleidiai")}, 1, .1, .8},
		{"floating-point zero points", 2e-38, quantizer.Recipe{ScaleDtype: packing.ScaleF32, Group: new(32), Mapping: gqf.MappingAsymmetric, Layouts: layoutsOf(t, "kleidiai")}, 3, .1, 1.5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := writeExtremes(t, tc.factor, tc.recipe)
			if err != nil {
				t.Fatal(err)
			}
			if r.SmallScales != tc.groups || r.Tensors[0].SmallScales != tc.groups {
				t.Errorf("%d groups have small scales, want %d", r.SmallScales, tc.groups)
			}
			f, err := gqf.Open(r.Output, gqf.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if v, err := f.Verify(context.Background(), gqf.VerifyOptions{Deep: true}); err != nil || !v.OK() {
				t.Fatalf("the file does not verify: %v, %+v", err, v)
			}
			w := extremes(tc.factor)
			rows, err := f.Tensor(0).Rows(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]float32, 96)
			rows.Dequantize(got, extremeRow)
			var noise, signal float64
			for k, v := range got {
				x := float64(w.value(extremeRow*96 + k))
				noise, signal = noise+(x-float64(v))*(x-float64(v)), signal+x*x
			}
			if e := math.Sqrt(noise / signal); e < tc.least || e > tc.most {
				t.Errorf("relative error %.3f, want %g to %g", e, tc.least, tc.most)
			}
		})
	}
}

// TestLargeScales: weights too large for the scales' dtype are an error whose advice fits the job.
func TestLargeScales(t *testing.T) {
	targets, err := quantizer.ParseTargets("llama.cpp-i8mm")
	if err != nil {
		t.Fatal(err)
	}
	var largest float32
	for k := range 96 {
		largest = max(largest, floats.Abs(extremes(1).value(extremeRow*96+k)))
	}
	for _, tc := range []struct {
		name   string
		factor float32
		recipe quantizer.Recipe
		advice string
	}{
		{"f16", 1e6, quantizer.Recipe{ScaleDtype: packing.ScaleF16, Group: new(32)}, "store bf16 scales, or leave the tensor unquantized with a rule NAME=skip"},
		{"bf16", .9995 * math.MaxFloat32 / largest, quantizer.Recipe{ScaleDtype: packing.ScaleBF16, Group: new(32), Bits: 1, Mapping: gqf.MappingFullRange}, "store f32 scales, or leave the tensor unquantized with a rule NAME=skip"},
		{"a target's dtype", 1e6, quantizer.Recipe{Targets: targets, Group: new(32)}, "(5.9604645e-08 to 65504): leave the tensor unquantized with a rule NAME=skip"},
		{"another family's layout", 1e6, quantizer.Recipe{ScaleDtype: packing.ScaleF16, Group: new(32), Layouts: layoutsOf(t, "kleidiai")}, "(5.9604645e-08 to 65504): leave the tensor unquantized with a rule NAME=skip"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := writeExtremes(t, tc.factor, tc.recipe)
			var te *quantizer.TensorError
			var se *rounding.ScaleError
			if !errors.As(err, &te) || !errors.As(err, &se) || te.Row != extremeRow || !strings.HasSuffix(err.Error(), tc.advice) {
				t.Errorf("got %v, want a ScaleError of row %d that ends with %q", err, extremeRow, tc.advice)
			}
		})
	}
}

// TestLargeWeights: weights whose squares float32 cannot hold have a signal-to-noise ratio all the
// same.
func TestLargeWeights(t *testing.T) {
	for _, r := range []quantizer.Recipe{
		{ScaleDtype: packing.ScaleF32, Group: new(32), Algorithm: gqf.AlgorithmRTN},
		{ScaleDtype: packing.ScaleF32, Group: new(32), Algorithm: gqf.AlgorithmRTN, Bits: 2, Mapping: gqf.MappingHalfStep},
		{ScaleDtype: packing.ScaleF32, Group: new(32), Algorithm: gqf.AlgorithmRTN, Mapping: gqf.MappingAsymmetric},
		{ScaleDtype: packing.ScaleF32, Group: new(32), Algorithm: gqf.AlgorithmSearch, Mapping: gqf.MappingAsymmetric, Layouts: layoutsOf(t, "kleidiai")},
	} {
		var sqnr [2]float64
		for i, factor := range []float32{0x1p40, 0x1p70} { // powers of two change no code
			w := extremes(1)
			normal := w.value
			w.value = func(i int) float32 { return normal(i) * factor }
			p, err := newPlan(t, writeCheckpoint(t, "", w), Options{Recipe: r})
			if err != nil {
				t.Fatal(err)
			}
			report, err := p.Write(context.Background(), filepath.Join(t.TempDir(), "model.gqf"))
			if err != nil {
				t.Fatal(err)
			}
			sqnr[i] = report.MeanSQNR
		}
		near := 1e-4
		if r.Algorithm == gqf.AlgorithmSearch { // does not weight the errors of such weights
			near = 0.1
		}
		if !(math.Abs(sqnr[0]-sqnr[1]) < near) {
			t.Errorf("%+v: SQNR %v dB, of larger weights %v dB", r, sqnr[0], sqnr[1])
		}
	}
}

// TestRepackTooSmall: scales that another layout cannot hold are not changed by a repack.
func TestRepackTooSmall(t *testing.T) {
	r, err := writeExtremes(t, 1e-37, quantizer.Recipe{ScaleDtype: packing.ScaleF32, Group: new(quantizer.PerChannel), Bits: 4, EmbeddingBits: 4})
	if err != nil {
		t.Fatal(err)
	}
	f, err := gqf.Open(r.Output, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := NewRepack(f, r.Output, RepackOptions{Layouts: layoutsOf(t, "kleidiai")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Write(context.Background(), filepath.Join(t.TempDir(), "again.gqf"))
	var se *rounding.ScaleError
	if !errors.As(err, &se) || !strings.HasSuffix(err.Error(), "repack to another layout, or quantize the checkpoint again") {
		t.Errorf("got %v, want a ScaleError", err)
	}
}

// TestInfiniteSums: weights whose sum float32 cannot hold are refused by name, row and sum in every
// layout that stores it, whichever way they come there.
func TestInfiniteSums(t *testing.T) {
	for _, tc := range []struct {
		format string
		scale  packing.ScaleDtype
		group  int
		sums   bool
	}{
		{"lowbit", packing.ScaleBF16, 32, true},
		{"lowbit", packing.ScaleF32, quantizer.PerChannel, true},
		{"lowbit:4x8x2", packing.ScaleBF16, 48, true},
		{"torchao", packing.ScaleBF16, 32, true},
		{"kleidiai", packing.ScaleBF16, 32, true},
		{"kleidiai", packing.ScaleF32, quantizer.PerChannel, false},
		{"torchao", packing.ScaleF32, 32, false},
		{"codes", packing.ScaleBF16, 32, false},
		{"codes,lowbit", packing.ScaleBF16, 32, true},
	} {
		for _, sign := range []struct {
			name  string
			value func(i int) float32
			sum   string
		}{
			{"infinite", func(i int) float32 { return -3e38 }, "-Inf"},
			// The first segments add up to more than float32 holds, and so do the next, with the other sign.
			{"NaN", func(i int) float32 { return 3e38 * float32(1-2*(i/32%2)) }, "NaN"},
		} {
			t.Run(fmt.Sprint(tc.format, " ", tc.scale, " ", tc.group, " ", sign.name), func(t *testing.T) {
				w := extremes(1)
				normal := w.value
				w.value = func(i int) float32 {
					if i/96 == extremeRow {
						return sign.value(i % 96)
					}
					return normal(i)
				}
				recipe := quantizer.Recipe{Layouts: layoutsOf(t, tc.format), ScaleDtype: tc.scale, Group: new(tc.group), Algorithm: gqf.AlgorithmRTN}
				p, err := newPlan(t, writeCheckpoint(t, "", w), Options{Recipe: recipe})
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(t.TempDir(), "model.gqf")
				_, err = p.Write(context.Background(), path)
				if !tc.sums {
					if err != nil {
						t.Fatal(err)
					}
					f, err := gqf.Open(path, gqf.Options{})
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
					if p, err = NewRepack(f, path, RepackOptions{Layouts: layoutsOf(t, "lowbit")}); err != nil {
						t.Fatal(err)
					}
					_, err = p.Write(context.Background(), filepath.Join(t.TempDir(), "again.gqf"))
					wantSumError(t, err, w.name, sign.sum, "repack to another layout")
					return
				}
				wantSumError(t, err, w.name, sign.sum, rounding.SkipAdvice)
			})
		}
	}
}

func wantSumError(t *testing.T, err error, tensor, sum, advice string) {
	t.Helper()
	var te *quantizer.TensorError
	var se *rounding.SumError
	if !errors.As(err, &te) || !errors.As(err, &se) || te.Tensor != tensor || te.Row != extremeRow || !strings.Contains(err.Error(), "row 5") || !strings.Contains(err.Error(), sum) || !strings.Contains(err.Error(), advice) {
		t.Errorf("got %v, want the sum %s of row %d of %q refused", err, sum, extremeRow, tensor)
	}
}
