package conversion

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// TestFloatZerosFile: which tensors of a file have floating-point zero points, what they dequantize
// to, and where they can go.
func TestFloatZerosFile(t *testing.T) {
	w := testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{37, 192}}
	experts := testTensor{name: "model.layers.0.mlp.experts.down_proj", dtype: packing.BF16, shape: []int64{2, 41, 192}}
	// K 44: lowbit
	odd := testTensor{name: "layers.0.k_proj.weight", dtype: packing.F32, shape: []int64{16, 44}}
	dir := writeCheckpoint(t, `{"model_type": "qwen3_5_moe", "num_experts": 2}`, w, experts, odd)
	for _, a := range []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmRTN} {
		t.Run(a.String(), func(t *testing.T) {
			want, inLowbit := rounding.FloatZeros, rounding.FractionalZeros
			if a == gqf.AlgorithmRTN {
				want, inLowbit = rounding.IntegerZeros, rounding.IntegerZeros
			}
			recipe := recipeOf(rounding.Scheme{Bits: 4, Group: 64, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32, Algorithm: a}, packing.Tile{})
			recipe.Layouts = layoutsOf(t, "kleidiai")
			recipe.Rules = []quantizer.Rule{{Match: odd.name, Layouts: layoutsOf(t, "lowbit")}}
			p, direct, f := runJob(t, dir, Options{Recipe: recipe, Threads: 2})
			if _, again, _ := runJob(t, dir, Options{Recipe: recipe, Threads: 1}); !bytes.Equal(again, direct) {
				t.Error("the number of threads matters")
			}
			for name, zeros := range map[string]rounding.ZeroPoints{w.name: want, experts.name: want, odd.name: inLowbit} {
				if l := line(t, p, name); l.ZeroPoints != zeros {
					t.Errorf("%s: %s zero points in the plan, want %s", name, l.ZeroPoints, zeros)
				}
				gt, _ := f.Lookup(name)
				if rows, err := gt.Rows(0, 0); err != nil || rows.HasNonIntegerZeros() != (zeros == rounding.FloatZeros) {
					t.Errorf("%s: floating-point zero points in the file: %v, %v", name, rows.HasNonIntegerZeros(), err)
				}
			}
			checkFloatZeroRows(t, f, w.name, w.values(), rounding.Scheme{Bits: 4, Group: 64, Mapping: gqf.MappingAsymmetric, ScaleDtype: packing.ScaleF32, Algorithm: a})

			// To other tiles of the layout and back nothing changes; the file is what quantizing gives.
			recipe.Layouts = layoutsOf(t, "kleidiai:4x8x2")
			_, direct2, _ := runJob(t, dir, Options{Recipe: recipe})
			rp, tiles, other := repack(t, f, RepackOptions{Layouts: recipe.Layouts})
			if l := line(t, rp, w.name); l.ZeroPoints != want {
				t.Errorf("%s zero points in the plan of a repack", l.ZeroPoints)
			}
			if !bytes.Equal(tiles, direct2) {
				t.Error("repacking to another tile gives another file than quantizing into it")
			}
			if _, back, _ := repack(t, other, RepackOptions{Layouts: layoutsOf(t, "kleidiai")}); !bytes.Equal(back, direct) {
				t.Error("repacking to another tile and back gives another file")
			}

			// Layouts with integer zero points.
			for _, layouts := range []string{"lowbit", "codes,kleidiai", "torchao", "kleidiai:8x16x2"} {
				_, err := NewRepack(f, "in.gqf", RepackOptions{Layouts: layoutsOf(t, layouts)})
				var request *quantizer.RequestError
				if want == rounding.IntegerZeros && err != nil {
					t.Errorf("%s: %v", layouts, err)
				} else if want == rounding.FloatZeros && (!errors.As(err, &request) || !strings.Contains(err.Error(), `in.gqf: tensor "`) || !strings.Contains(err.Error(), "has floating-point zero points, which")) {
					t.Errorf("%s: error %v", layouts, err)
				}
			}

			// Beside such a layout zero points are whole, and the same in both.
			recipe.Layouts = layoutsOf(t, "kleidiai,codes")
			p, _, f = runJob(t, dir, Options{Recipe: recipe})
			if l := line(t, p, w.name); l.ZeroPoints != rounding.IntegerZeros || codes(t, f, w.name, 0) != codes(t, f, w.name, 1) {
				t.Errorf("%s zero points in two layouts, or other codes", l.ZeroPoints)
			}
			if _, err := NewRepack(f, "in.gqf", RepackOptions{}); err != nil {
				t.Errorf("integer zero points: %v", err)
			}
		})
	}
}

// checkFloatZeroRows holds a tensor's rows to what the row quantizer gives.
func checkFloatZeroRows(t *testing.T, f *gqf.File, name string, x []float32, s rounding.Scheme) {
	t.Helper()
	if s.Algorithm == gqf.AlgorithmRTN {
		return
	}
	gt, _ := f.Lookup(name)
	rows, err := gt.Rows(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	k := int(rows.Header().Cols)
	rq, err := rounding.NewRowQuantizer(s, k)
	if err != nil {
		t.Fatal(err)
	}
	q, scales, zeros, y := make([]int8, k), make([]float32, s.Groups(k)), make([]float32, s.Groups(k)), make([]float32, k)
	for r := range int(rows.Header().Rows) {
		if err := rq.QuantizeFloatZeros(q, scales, zeros, x[r*k:][:k], nil); err != nil {
			t.Fatal(err)
		}
		rows.Dequantize(y, r)
		for i, v := range y {
			g := i / s.Group
			if want := float32(float32(q[i])*scales[g]) + zeros[g]; v != want {
				t.Fatalf("row %d column %d: %v, want %v", r, i, v, want)
			}
		}
	}
}
