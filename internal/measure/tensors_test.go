package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// TestTensors compares with sums over the output of Dequantize, for every layout and kind of
// tensor.
func TestTensors(t *testing.T) {
	const e, inter, hidden = 3, 40, 64
	fused := `{"model_type": %q, "num_experts": 3}`
	matrix := testTensor{name: "model.layers.0.self_attn.q_proj.weight", dtype: packing.F32, shape: []int64{37, 192}}
	bias := testTensor{name: "model.layers.0.self_attn.q_proj.bias", dtype: packing.F32, shape: []int64{37}}
	norm := testTensor{name: "model.norm.weight", dtype: packing.BF16, shape: []int64{192}}
	tall := testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.BF16, shape: []int64{3001, 96}}
	table := testTensor{name: "model.embed_tokens.weight", dtype: packing.BF16, shape: []int64{97, 64}}
	head := testTensor{name: "lm_head.weight", dtype: packing.BF16, shape: []int64{97, 64}}
	tests := []struct {
		name, config, layout string
		recipe               quantizer.Recipe
		tensors              []testTensor
	}{
		{name: "lowbit", tensors: []testTensor{matrix, bias, norm, tall, table}},
		{name: "asymmetric", recipe: quantizer.Recipe{Bits: 3, Group: new(48), Mapping: gqf.MappingAsymmetric}, tensors: []testTensor{matrix, tall}},
		{name: "channel", recipe: quantizer.Recipe{Bits: 8, Group: new(quantizer.PerChannel)}, tensors: []testTensor{matrix, bias}},
		{name: "two layouts", recipe: quantizer.Recipe{Layouts: formats(t, "lowbit,kleidiai"), ScaleDtype: packing.ScaleF16}, tensors: []testTensor{matrix, norm}},
		{name: "qsi4cxp", recipe: quantizer.Recipe{Group: new(quantizer.PerChannel), Layouts: formats(t, "kleidiai"), ScaleDtype: packing.ScaleF32}, tensors: []testTensor{matrix, bias}},
		{name: "qai4c32p", recipe: quantizer.Recipe{Mapping: gqf.MappingAsymmetric, Layouts: formats(t, "kleidiai"), ScaleDtype: packing.ScaleF32}, tensors: []testTensor{matrix}},
		{name: "codes", recipe: quantizer.Recipe{Layouts: formats(t, "codes")}, tensors: []testTensor{matrix}},
		{name: "torchao", recipe: quantizer.Recipe{Layouts: formats(t, "torchao"), ScaleDtype: packing.ScaleF32}, tensors: []testTensor{matrix, bias, table, head}},
		{name: "experts", config: fmt.Sprintf(fused, "qwen3_5_moe"), tensors: []testTensor{
			{name: "model.layers.0.mlp.experts.gate_up_proj", dtype: packing.BF16, shape: []int64{e, 2 * inter, hidden}}}},
		{name: "transposed", config: fmt.Sprintf(fused, "llama4_text"), tensors: []testTensor{
			{name: "model.layers.0.feed_forward.experts.gate_up_proj", dtype: packing.BF16, shape: []int64{e, hidden, 2 * inter}}}},
		{name: "FP8", tensors: []testTensor{
			{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.F8E4M3, shape: []int64{150, 200}},
			{name: "model.layers.0.mlp.up_proj.weight_scale_inv", dtype: packing.F32, shape: []int64{2, 2}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := writeCheckpoint(t, tt.config, tt.tensors...)
			path, _ := quantize(t, dir, conversion.Options{Recipe: tt.recipe})
			f, back := openFile(t, path), t.TempDir()
			if _, err := conversion.Dequantize(context.Background(), f, "", back, conversion.DequantizeOptions{Dtype: packing.F32}); err != nil {
				t.Fatal(err)
			}
			ck, stored := openCheckpoint(t, dir), openCheckpoint(t, back)
			stats := tensorsOf(t, dir, path, TensorOptions{})
			for i := range stats {
				checkStats(t, f, &stats[i], readAll(t, ck, stats[i].Name), readAll(t, stored, stats[i].Name))
			}
			if names := len(tt.tensors) - strings.Count(fmt.Sprint(tt.tensors), "_scale_inv"); len(stats) < names {
				t.Errorf("%d results for %d tensors", len(stats), names)
			}
		})
	}
}

// checkStats computes s again from all of a tensor's weights x and stored weights y, in the
// checkpoint's order.
func checkStats(t *testing.T, f *gqf.File, s *accuracy.TensorStats, x, y []float32) {
	t.Helper()
	if s.SourceChanged {
		t.Errorf("%s: the checkpoint is said to have changed", s.Label())
	}
	if s.Unquantized {
		if !s.Equal || !s.SQNR.Exact() || s.Cosine != 1 {
			t.Errorf("%s: unquantized, and %+v", s.Label(), s)
		}
		return
	}
	tensor, _ := f.Lookup(s.Name)
	rows, err := tensor.Rows(s.Variant, s.Slice)
	if err != nil {
		t.Fatal(err)
	}
	n := int(s.Rows * s.Cols)
	x, y = x[s.Slice*n:][:n], y[s.Slice*n:][:n]
	at := func(i int) (r, c int) {
		if tensor.Transposed {
			return i % int(s.Rows), i / int(s.Rows)
		}
		return i / int(s.Cols), i % int(s.Cols)
	}
	var signal, noise, dot, other, largest float64
	var exact int64
	for i := range x {
		w, v := float64(x[i]), float64(y[i])
		signal += w * w
		noise += (w - v) * (w - v)
		dot += w * v
		other += v * v
		largest = max(largest, math.Abs(w-v))
		if w == v {
			exact++
		}
		if r, c := at(i); s.MaxErrorAt == [2]int64{int64(r), int64(c)} && math.Abs(w-v) != s.MaxError {
			t.Errorf("%s: the error at %v is %v, not %v", s.Label(), s.MaxErrorAt, math.Abs(w-v), s.MaxError)
		}
	}
	saturated := 0
	codes := make([]int8, s.Cols)
	for r := range int(s.Rows) {
		rows.Codes(codes, nil, nil, r)
		for _, q := range codes {
			if q == int8(-1<<(s.Bits-1)) || q == int8(1<<(s.Bits-1)-1) {
				saturated++
			}
		}
	}
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("%s: %s is %v, want %v", s.Label(), what, got, want)
		}
	}
	near("SQNR", float64(s.SQNR), 10*math.Log10(signal/noise))
	near("MSE", s.MSE, noise/float64(n))
	near("MaxError", s.MaxError, largest)
	near("Cosine", s.Cosine, dot/math.Sqrt(signal*other))
	near("Saturated", s.Saturated, float64(saturated)/float64(n))
	all := s.Errors.None
	for _, c := range s.Errors.Counts {
		all += c
	}
	if s.Errors.None != exact || all != int64(n) {
		t.Errorf("%s: the histogram has %d weights, %d of them exact; want %d, %d", s.Label(), all, s.Errors.None, n, exact)
	}
	looked := s.Role == "embedding" && len(s.SharedWith) == 0
	if _, err := kernels.KernelFor(rows.Header(), 1, kernels.Options{}); (s.Output == nil) != (err != nil || looked) || (s.Output == nil) == (s.NoOutput == "") {
		t.Errorf("%s: outputs %v (%s)", s.Label(), s.Output, s.NoOutput)
	}
}

// TestOtherCheckpoint checks that a checkpoint of another model is refused and a changed checkpoint
// is reported.
func TestOtherCheckpoint(t *testing.T) {
	w := testTensor{name: "layers.0.up_proj.weight", dtype: packing.F32, shape: []int64{64, 96}}
	norm := testTensor{name: "norm.weight", dtype: packing.F32, shape: []int64{300}}
	ids := testTensor{name: "position_ids", dtype: packing.U8, shape: []int64{10}}
	path, _ := quantize(t, writeCheckpoint(t, "", w, norm, ids), conversion.Options{})
	changed := func(tt testTensor, set func(x []float32)) testTensor { tt.set = set; return tt }
	as := func(tt testTensor, d packing.Dtype, shape ...int64) testTensor {
		tt.dtype, tt.shape = d, shape
		return tt
	}
	tests := []struct {
		name    string
		tensors []testTensor
		want    string // part of the error, or of the report
	}{
		{"a tensor less", []testTensor{norm, ids}, `"layers.0.up_proj.weight" is not in it`},
		{"another shape", []testTensor{as(w, packing.F32, 96, 64), norm, ids}, `model.safetensors does not belong to this .gqf: tensor "layers.0.up_proj.weight" has shape [96 64] there and [64 96] in the .gqf`},
		{"no weights", []testTensor{as(w, packing.U8, 64, 96), norm, ids}, "dtype U8"},
		{"NaN", []testTensor{changed(w, func(x []float32) { x[5*96+7] = float32(math.NaN()) }), norm, ids}, "row 5, column 7 is NaN in the checkpoint"},
		{"other weights", []testTensor{changed(w, func(x []float32) { x[0]++ }), norm, ids}, "up_proj.weight: changed"},
		{"another dtype", []testTensor{as(w, packing.BF16, 64, 96), norm, ids}, "up_proj.weight: changed"},
		{"another norm", []testTensor{w, changed(norm, func(x []float32) { x[299]++ }), ids}, "norm.weight: changed, from element 299 on"},
		{"a norm with NaN", []testTensor{w, changed(norm, func(x []float32) { x[2] = float32(math.NaN()) }), ids}, "norm.weight: changed, from element 2 on; element 2 is NaN in the checkpoint"},
		{"a norm of another dtype", []testTensor{w, as(norm, packing.BF16, 300), ids}, "norm.weight: changed, other numbers, BF16 in the checkpoint and F32 in the file"},
		{"other ids", []testTensor{w, norm, changed(ids, func(x []float32) { x[3] += 0.5 })}, "position_ids: changed, from element 3 on"},
	}
	for _, tt := range tests {
		var told []string
		stats, err := Tensors(context.Background(), openCheckpoint(t, writeCheckpoint(t, "", tt.tensors...)), openFile(t, path), TensorOptions{})
		if err != nil {
			told = append(told, err.Error())
			var m *MismatchError
			if tt.name != "NaN" && !errors.As(err, &m) {
				t.Errorf("%s: error of type %T", tt.name, err)
			}
		}
		for _, s := range stats {
			if line := s.Name; s.SourceChanged || s.Unquantized && !s.Equal {
				if line += ": changed"; s.Unquantized {
					line += ", " + s.Difference
					if s.NotFinite != "" {
						line += "; " + s.NotFinite
					}
				}
				told = append(told, line)
			}
			if _, err := json.Marshal(s); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		if len(told) != 1 || !strings.Contains(told[0], tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, told, tt.want)
		}
	}
}

// TestSameNumbers: unquantized tensors with the checkpoint's numbers in another dtype are equal,
// norms but for the rounding of weight + 1 in .gguf files, others but for exact rounding to F16.
func TestSameNumbers(t *testing.T) {
	values := func(add, divisor float32) func(x []float32) {
		return func(x []float32) {
			for i := range x {
				x[i] = float32(i%64)/divisor + add
			}
		}
	}
	norm := testTensor{name: "model.norm.weight", shape: []int64{64}}
	bias := testTensor{name: "model.layers.0.self_attn.q_proj.bias", shape: []int64{64}}
	for _, tt := range []struct {
		of        testTensor
		src, file packing.Dtype
		divisor   float32
		add       float32 // in the file
		want      bool
	}{
		{norm, packing.BF16, packing.F32, 64, 0, true},
		{bias, packing.BF16, packing.F32, 64, 0, true},
		{norm, packing.BF16, packing.F32, 64, 0x1p-24, true},
		{norm, packing.BF16, packing.F32, 64, 0x1p-22, false},
		{bias, packing.BF16, packing.F32, 64, 0x1p-24, false},
		{bias, packing.F32, packing.F16, 63, 0, true},
		{bias, packing.F32, packing.F16, 63, 0x1p-11, false},
		{bias, packing.F32, packing.F16, 1e-4, 0, false}, // 1e4 times the index, beyond F16's range
		{bias, packing.F32, packing.BF16, 63, 0, false},
		{bias, packing.F16, packing.F32, 63, 0x1p-24, false},
	} {
		src, out := tt.of, tt.of
		src.dtype, src.set = tt.src, values(0, tt.divisor)
		out.dtype, out.set = tt.file, values(tt.add, tt.divisor)
		path, _ := quantize(t, writeCheckpoint(t, "", out), conversion.Options{Recipe: quantizer.Recipe{AllowUnquantized: true}})
		s := tensorsOf(t, writeCheckpoint(t, "", src), path, TensorOptions{})[0]
		if s.Equal != tt.want || s.Equal != (s.Difference == "") {
			t.Errorf("%s %s + %g as %s: equal %t %q, want %t", s.Name, tt.src, tt.add, tt.file, s.Equal, s.Difference, tt.want)
		}
		if s.Equal && tt.file == packing.F16 && (s.SQNR < 60 || s.SQNR > 90 || s.MaxError == 0) {
			t.Errorf("rounded to F16: %g dB, largest error %g", s.SQNR, s.MaxError)
		}
	}
}

// TestNotFiniteUnquantized: an unquantized tensor with an infinity is named, even if it is equal.
func TestNotFiniteUnquantized(t *testing.T) {
	norm := testTensor{name: "norm.weight", dtype: packing.F32, shape: []int64{300}, set: func(x []float32) { x[7] = float32(math.Inf(-1)) }}
	dir := writeCheckpoint(t, "", testTensor{name: "layers.0.up_proj.weight", dtype: packing.F32, shape: []int64{64, 96}}, norm)
	path, _ := quantize(t, dir, conversion.Options{Recipe: quantizer.Recipe{AllowUnquantized: true}})
	r, err := (&Job{Source: dir, File: path}).Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`unquantized tensor "norm.weight": element 7 is -Inf in the checkpoint and -Inf in the file`}
	if !slices.Equal(r.Notes, want) {
		t.Errorf("notes %q, want %q", r.Notes, want)
	}
	if s := r.Tensors[1]; !s.Equal || s.Name != "norm.weight" {
		t.Errorf("%+v", s)
	}
}

// TestHeadOfItsOwn has no lm_head in the checkpoint, and a rule that quantizes it differently from
// the embedding.
func TestHeadOfItsOwn(t *testing.T) {
	table := testTensor{name: "model.embed_tokens.weight", dtype: packing.BF16, shape: []int64{96, 64}}
	up := testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.BF16, shape: []int64{64, 64}}
	dir := writeCheckpoint(t, `{"model_type": "llama", "tie_word_embeddings": true, "hidden_size": 64, "vocab_size": 96}`, table, up)
	var rules []quantizer.Rule
	for _, s := range []string{"lm_head.weight=6", "model.embed_tokens.weight=2"} {
		r, err := quantizer.ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	path, _ := quantize(t, dir, conversion.Options{Rules: rules})
	got := map[string]*accuracy.TensorStats{}
	stats := tensorsOf(t, dir, path, TensorOptions{})
	for i := range stats {
		got[stats[i].Name] = &stats[i]
	}
	head, looked := got["lm_head.weight"], got[table.name]
	if head == nil || looked == nil || head.Bits != 6 || head.SQNR < 30 || looked.Bits != 2 || looked.SQNR > 12 {
		t.Fatalf("%+v", stats)
	}
	if head.Output == nil || looked.Output != nil {
		t.Errorf("outputs of the head %v, of the table %v (%s)", head.Output, looked.Output, looked.NoOutput)
	}
}

// TestMatch selects tensors by any name, and checks that progress is reported to the end.
func TestMatch(t *testing.T) {
	dir := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
	path, _ := quantize(t, dir, conversion.Options{})
	var done atomic.Int64
	stats := tensorsOf(t, dir, path, TensorOptions{
		NoOutputs: true, Match: func(name string) bool { return name == "lm_head.weight" || strings.Contains(name, "norm") },
		Progress: func(n int64) { done.Add(n) },
	})
	if len(stats) != 14 || stats[0].Name != "model.embed_tokens.weight" || stats[0].SharedWith[0] != "lm_head.weight" {
		t.Errorf("%d tensors, the first %+v", len(stats), stats[0])
	}
	if stats[0].NoOutput != "not asked for" || done.Load() != 1024*128+13*128 {
		t.Errorf("%s; %d weights", stats[0].NoOutput, done.Load())
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Tensors(ctx, openCheckpoint(t, dir), openFile(t, path), TensorOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after the context has ended", err)
	}
}

// TestEntryRelease: an entry releases its work with its last block, or 200,000 tensors take 600 MB.
func TestEntryRelease(t *testing.T) {
	e := &entry{stats: &accuracy.TensorStats{TensorScheme: &accuracy.TensorScheme{}}, work: &work{}, blocks: 2}
	e.merge(1, &part{count: 1, differ: -1})
	if e.total == nil || len(e.pending) != 1 {
		t.Errorf("the sums are %v, %d blocks wait", e.total, len(e.pending))
	}
	e.merge(0, &part{count: 1, differ: -1})
	if e.work != nil {
		t.Error("the work is not released")
	}
}
