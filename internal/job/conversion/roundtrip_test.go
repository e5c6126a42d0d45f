package conversion

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// reconstruct returns a row of weights as the quantizer rounds it.
func reconstruct(t testing.TB, s rounding.Scheme, x []float32) []float32 {
	t.Helper()
	q, err := rounding.NewRowQuantizer(s, len(x))
	if err != nil {
		t.Fatal(err)
	}
	codes, scales := make([]int8, len(x)), make([]float32, s.Groups(len(x)))
	var zeros []int8
	if s.Mapping == gqf.MappingAsymmetric {
		zeros = make([]int8, len(scales))
	}
	if err := q.Quantize(codes, scales, zeros, x, nil); err != nil {
		t.Fatal(err)
	}
	group := s.Group
	if group == 0 {
		group = len(x)
	}
	w := make([]float32, len(x))
	for k := range w {
		z := float32(0)
		switch {
		case zeros != nil:
			z = float32(zeros[k/group]) * s.ZeroUnit()
		case s.Mapping == gqf.MappingHalfStep:
			z = -0.5
		}
		w[k] = float32((float32(codes[k]) - z) * scales[k/group])
	}
	return w
}

// checkRows compares every row of a quantized tensor with want(slice, row), bit for bit.
func checkRows(t *testing.T, f *gqf.File, name string, want func(slice, row int) []float32) {
	t.Helper()
	gt, ok := f.Lookup(name)
	if !ok {
		t.Fatalf("no tensor %q in the file", name)
	}
	for _, p := range gt.Payloads() {
		lb, err := packing.NewLowbit(p.Header)
		if err != nil {
			t.Fatal(err)
		}
		data, err := f.Data(p)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, p.Header.Cols)
		for r := range int(p.Header.Rows) {
			lb.DequantizeRow(got, data, r)
			w := want(p.Slice, r)
			for k := range got {
				if math.Float32bits(got[k]) != math.Float32bits(w[k]) {
					t.Fatalf("%s slice %d row %d column %d: the file says %v, the quantizer %v", name, p.Slice, r, k, got[k], w[k])
				}
			}
		}
	}
}

// TestRoundTrip compares the weights in a file with the quantizer's, for every scheme and tile.
func TestRoundTrip(t *testing.T) {
	tensors := []testTensor{
		{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{37, 172}},
		{name: "layers.0.o_proj.weight", dtype: packing.BF16, shape: []int64{32, 96}},
		{name: "layers.0.up_proj.weight", dtype: packing.F16, shape: []int64{33, 341}},
		{name: "layers.0.norm.weight", dtype: packing.BF16, shape: []int64{96}},
	}
	dir := writeCheckpoint(t, "", tensors...)
	groups := []int{16, 32, 48, 128, 0}
	mappings := []gqf.Mapping{gqf.MappingFullRange, gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric, gqf.MappingHalfStep}
	tiles := []string{"4x8x2", "4x16x2", "8x8x2", "8x16x2"}
	scales := []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32}
	algorithms := []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmRTN, gqf.AlgorithmGPTQ}
	for bits := 1; bits <= 8; bits++ {
		for mi, mapping := range mappings {
			for gi, group := range groups {
				for ti, tile := range tiles {
					if testing.Short() && (bits+4*mi+5*gi+3*ti)%17 != 0 {
						continue
					}
					s := rounding.Scheme{Bits: bits, Group: group, Mapping: mapping, ScaleDtype: scales[(bits+gi+ti)%3], Algorithm: algorithms[(gi+ti)%len(algorithms)]}
					if s.ValidateCommand() != nil {
						continue
					}
					tl, err := packing.ParseTile(tile)
					if err != nil {
						t.Fatal(err)
					}
					_, _, f := runJob(t, dir, Options{Recipe: recipeOf(s, tl), Threads: 1 + ti%2})
					s.Fractions = mapping == gqf.MappingAsymmetric && bits < 8 && s.Algorithm != gqf.AlgorithmRTN
					for _, tt := range tensors[:3] {
						x := tt.values()
						k := int(tt.shape[1])
						checkRows(t, f, tt.name, func(_, row int) []float32 { return reconstruct(t, s, x[row*k:(row+1)*k]) })
					}
					checkKept(t, f, tensors[3])
				}
			}
		}
	}
}

func checkKept(t *testing.T, f *gqf.File, tt testTensor) {
	t.Helper()
	gt, ok := f.Lookup(tt.name)
	if !ok {
		t.Fatalf("no tensor %q in the file", tt.name)
	}
	p := gt.Payloads()[0]
	data, err := f.Data(p)
	if err != nil {
		t.Fatal(err)
	}
	if p.Header.Layout != packing.LayoutPlain || !bytes.Equal(data, tt.bytes()) {
		t.Errorf("%s is not the checkpoint's bytes in layout plain", tt.name)
	}
}

// TestFusedExperts: each expert is a payload whose rows are outputs, whichever order the
// architecture stores.
func TestFusedExperts(t *testing.T) {
	const e, hidden, inter = 3, 64, 48
	for _, tc := range []struct {
		modelType  string
		transposed bool
	}{{"qwen3_5_moe", false}, {"llama4_text", true}} {
		t.Run(tc.modelType, func(t *testing.T) {
			shape := []int64{e, 2 * inter, hidden}
			if tc.transposed {
				shape = []int64{e, hidden, 2 * inter}
			}
			name := "model.layers.0.mlp.experts.gate_up_proj"
			if tc.transposed {
				name = "model.layers.0.feed_forward.experts.gate_up_proj"
			}
			tt := testTensor{name: name, dtype: packing.BF16, shape: shape}
			dir := writeCheckpoint(t, fmt.Sprintf(`{"model_type": %q, "num_experts": 3}`, tc.modelType), tt)
			_, _, f := runJob(t, dir, Options{})
			x := tt.values()
			row := func(slice, r int) []float32 {
				w := make([]float32, hidden)
				for k := range w {
					if tc.transposed {
						w[k] = x[(slice*hidden+k)*2*inter+r]
					} else {
						w[k] = x[(slice*2*inter+r)*hidden+k]
					}
				}
				return w
			}
			gt, _ := f.Lookup(name)
			if gt.Experts != e || gt.Transposed != tc.transposed || len(gt.Payloads()) != e {
				t.Fatalf("%d experts, transposed %v, %d payloads", gt.Experts, gt.Transposed, len(gt.Payloads()))
			}
			s := quantizer.Recipe{}.Scheme(gqf.RoleExpert, nil)
			checkRows(t, f, name, func(slice, r int) []float32 { return reconstruct(t, s, row(slice, r)) })
			checkDequantized(t, f, tt, func(i int) float32 {
				per := 2 * inter * hidden
				sl, in := i/per, i%per
				if tc.transposed {
					return reconstruct(t, s, row(sl, in%(2*inter)))[in/(2*inter)]
				}
				return reconstruct(t, s, row(sl, in/hidden))[in%hidden]
			})
		})
	}
}

// checkDequantized runs Dequantize and compares a tensor of the new checkpoint, every 7th element.
func checkDequantized(t *testing.T, f *gqf.File, tt testTensor, want func(i int) float32) {
	t.Helper()
	dir := t.TempDir()
	if _, err := Dequantize(context.Background(), f, "", dir, DequantizeOptions{Dtype: packing.F32}); err != nil {
		t.Fatal(err)
	}
	ck := openCheckpoint(t, dir)
	st, ok := ck.Lookup(tt.name)
	if !ok || !slices.Equal(st.Shape, tt.shape) {
		t.Fatalf("dequantized %s: %+v", tt.name, st)
	}
	b, err := ck.Bytes(st)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < tt.numel(); i += 7 {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])); got != want(i) {
			t.Fatalf("dequantized %s[%d] = %v, want %v", tt.name, i, got, want(i))
		}
	}
}

// TestFP8 multiplies block scales into the weights, partial edge blocks too, and folds their tensor
// away.
func TestFP8(t *testing.T) {
	w := testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.F8E4M3, shape: []int64{150, 200},
		value: func(i int) float32 { return float32(i * 37 % 120) }} // bytes 0..119: finite E4M3
	s := testTensor{name: w.name + "_scale_inv", dtype: packing.F32, shape: []int64{2, 2}, value: func(i int) float32 { return float32(i+1) * 0.01 }}
	dir := writeCheckpoint(t, `{"model_type": "deepseek_v3", "quantization_config": {"weight_block_size": [128, 128]}}`, w, s)
	p, _, f := runJob(t, dir, Options{})
	row := func(r int) []float32 {
		x := make([]float32, 200)
		for k := range x {
			x[k] = float32(floats.F8E4M3ToF32(byte((r*200+k)*37%120)) * (float32(r/128*2+k/128+1) * 0.01))
		}
		return x
	}
	checkRows(t, f, w.name, func(_, r int) []float32 {
		return reconstruct(t, quantizer.Recipe{}.Scheme(gqf.RoleProjection, nil), row(r))
	})
	i := slices.IndexFunc(p.Tensors, func(l *plan.Tensor) bool { return l.Name == s.name })
	if i < 0 || p.Tensors[i].Action != plan.ActionAbsorb {
		t.Errorf("the plan says of the scales: %+v", p.Tensors)
	}
	if _, ok := f.Lookup(s.name); ok {
		t.Error("the folded scales can be looked up")
	}
	out := t.TempDir()
	if _, err := Dequantize(context.Background(), f, "", out, DequantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(out, "config.json"))
	if err != nil || strings.Contains(string(config), "quantization_config") {
		t.Errorf("dequantized config.json: %s, %v", config, err)
	}
}

// recipeOf makes every tensor get scheme s.
func recipeOf(s rounding.Scheme, tile packing.Tile) quantizer.Recipe {
	return quantizer.Recipe{Algorithm: cmp.Or(s.Algorithm, gqf.AlgorithmRTN), Bits: s.Bits, Group: new(s.Group), Mapping: s.Mapping, ScaleDtype: s.ScaleDtype, PositiveScales: new(s.PositiveScales), Layouts: []quantizer.LayoutRequest{{Tile: tile}}, EmbeddingBits: s.Bits}
}
