package conversion

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/testmodels"
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// ggufPlan is the plan of quantizing a random model to a .gguf file of types with these bits.
func ggufPlan(t *testing.T, v testmodels.Variant, bits int, split int64) *Plan {
	t.Helper()
	dir := t.TempDir()
	v.Write(t, dir)
	return ggufPlanOf(t, dir, bits, split)
}

// ggufPlanOf is ggufPlan of the checkpoint in a directory.
func ggufPlanOf(t *testing.T, dir string, bits int, split int64) *Plan {
	t.Helper()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	r := quantizer.Recipe{Bits: bits, Targets: []quantizer.Target{quantizer.TargetGGUF}}
	p, err := NewPlan(ck, config, Options{Recipe: r, GGUF: &GGUFOptions{Pre: "llama-bpe", Split: split}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestReadBack(t *testing.T) {
	variants := testmodels.ForLlamaCpp(t)
	if testing.Short() {
		variants = variants[:2] // under emulation
	}
	for i, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			p := ggufPlan(t, v, []int{1, 2, 3, 4, 6, 8}[i%6], int64(i%3)*600_000)
			path := filepath.Join(t.TempDir(), "m.gguf")
			r, err := p.Write(context.Background(), path)
			if err != nil {
				t.Fatal(err)
			}
			if r.ReadBack == nil || r.ReadBack.Tokens != readBackTokens || r.ReadBack.Difference > 2e-5 {
				t.Errorf("%+v", r.ReadBack)
			}
			t.Logf("%d bits: %+v", p.opts.Recipe.Bits, r.ReadBack)
		})
	}
}

// TestReadBackFile reads exports of .gqf files back.
func TestReadBackFile(t *testing.T) {
	testshared.SlowEmulated(t, "TestReadBack runs there")
	dirs := map[string]string{}
	for _, name := range []string{"mixtral", "gemma3", "phi4-mini", "llama-bias-tied"} {
		dirs[name] = t.TempDir()
		testmodels.Find(t, name).Write(t, dirs[name])
	}
	dirs["fused"] = fuseExperts(t, dirs["mixtral"])
	if testing.Short() { // with the race detector
		dirs = map[string]string{"fused": dirs["fused"]}
	}
	for name, dir := range dirs {
		p := ggufPlanOf(t, dir, 4, 0)
		p.opts.GGUF = nil
		packed, err := NewPlan(p.ck, p.config, p.opts)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "m.gqf")
		if _, err := packed.Write(context.Background(), path); err != nil {
			t.Fatal(err)
		}
		f, err := gqf.Open(path, gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		export, err := NewExport(f, path, ExportOptions{GGUF: GGUFOptions{Pre: "llama-bpe"}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := export.Write(context.Background(), path+".gguf")
		if err != nil || r.ReadBack == nil || r.ReadBack.Difference > 2e-5 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		f.Close()
	}
}

// TestReadBackFailures spoils the description of a model before it is written: the file must not
// appear.
func TestReadBackFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("too slow under emulation")
	}
	tensor := func(o *ggufOutput, name string) *llamacpp.Tensor {
		for i := range o.model.Tensors {
			if o.model.Tensors[i].Name == name {
				return &o.model.Tensors[i]
			}
		}
		t.Fatalf("no tensor %q", name)
		return nil
	}
	swap := func(a, b string) func(o *ggufOutput) {
		return func(o *ggufOutput) {
			x, y := tensor(o, a), tensor(o, b)
			x.Name, y.Name = y.Name, x.Name
		}
	}
	for _, c := range []struct {
		name, variant, want string
		bits                int
		spoil               func(o *ggufOutput)
	}{
		{"permutation", "llama3", "logits on 8 tokens differ", 2, func(o *ggufOutput) { tensor(o, "blk.1.attn_q.weight").Parts[0].HeadDim = 0 }},
		{"names", "qwen3", "logits on 8 tokens differ", 1, swap("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight")},
		{"norm", "gemma2", "logits on 8 tokens differ", 4, func(o *ggufOutput) { tensor(o, "blk.1.ffn_norm.weight").Parts[0].Add = 0 }},
		{"norms", "gemma3", "logits on 8 tokens differ", 4, swap("blk.0.ffn_norm.weight", "blk.0.post_ffw_norm.weight")},
		{"rope factors", "phi4-mini", "logits on 8 tokens differ", 4, func(o *ggufOutput) { tensor(o, "rope_factors_short.weight").Values[3] *= 2 }},
		{"key", "llama3", "logits on 8 tokens differ", 4, func(o *ggufOutput) {
			for i, p := range o.model.Metadata {
				if p.Key == "llama.rope.freq_base" {
					o.model.Metadata[i].Value = float32(10000)
				}
			}
		}},
		{"rows of another layer", "llama2-linear", "logits on 8 tokens differ", 2, func(o *ggufOutput) {
			a, b := o.regionOf("model.layers.0.mlp.up_proj.weight"), o.regionOf("model.layers.1.mlp.up_proj.weight")
			a.tensor, b.tensor = b.tensor, a.tensor
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := ggufPlan(t, testmodels.Find(t, c.variant), c.bits, 0)
			c.spoil(p.out.(*ggufOutput))
			dir := t.TempDir()
			path := filepath.Join(dir, "m.gguf")
			_, err := p.Write(context.Background(), path)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Error("the file appeared")
			}
		})
	}
}

// regionOf is the one region of an item.
func (o *ggufOutput) regionOf(name string) *region {
	for _, it := range o.items {
		if e := it.common(); e.name() == name {
			return &o.regions[e.index][0][0]
		}
	}
	return nil
}

// TestCompareRows holds codes to the rows that they were made of.
func TestCompareRows(t *testing.T) {
	p := ggufPlan(t, testmodels.Find(t, "qwen3"), 4, 0)
	var q *quantized
	for _, it := range p.items {
		if it.common().name() == "model.layers.0.mlp.up_proj.weight" {
			q = it.(*quantized)
		}
	}
	w, err := p.ck.Weights(*q.src, safetensors.WeightsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	source := func(dst []float32, row int) error { return w.Read(dst, row, 1) }
	sign := func(dst []float32) { // 1 bit
		for i, v := range dst {
			dst[i] = 1
			if v < 0 {
				dst[i] = -1
			}
		}
	}
	for _, c := range []struct {
		name  string
		exact bool
		add   float32
		edit  func(dst []float32, row int)
		want  string
	}{
		{name: "codes", edit: func(dst []float32, row int) { w.Widen(dst, row, 1); sign(dst) }},
		{name: "codes of other rows", edit: func(dst []float32, row int) { w.Widen(dst, (row+1)%int(q.rows), 1); sign(dst) }, want: "16 of 16 rows"},
		{name: "codes in two rows", edit: func(dst []float32, row int) { w.Widen(dst, row, 1); dst[0] += float32(row % 2) }},
		{name: "weights", exact: true, edit: func(dst []float32, row int) { w.Widen(dst, row, 1) }},
		{name: "weights + 1", exact: true, add: 1, edit: func(dst []float32, row int) {
			w.Widen(dst, row, 1)
			for i := range dst {
				dst[i]++
			}
		}},
		{name: "one weight", exact: true, edit: func(dst []float32, row int) {
			if w.Widen(dst, row, 1); row == 0 {
				dst[9]++
			}
		}, want: "1 of 16 rows"},
	} {
		err := compareRows("up_proj", int(q.rows), int(q.cols), c.exact, c.add, source, c.edit)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestReadBackFused exports experts that a checkpoint has fused: the same tensors as of separate ones.
func TestReadBackFused(t *testing.T) {
	if testing.Short() {
		t.Skip("too slow under emulation")
	}
	dir := t.TempDir()
	testmodels.Find(t, "mixtral").Write(t, dir)
	var files [2][]byte
	for i, dir := range []string{dir, fuseExperts(t, dir)} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		r, err := ggufPlanOf(t, dir, 4, 0).Write(context.Background(), path)
		if err != nil || r.ReadBack == nil || r.ReadBack.Difference > 2e-5 {
			t.Fatalf("%+v, %v", r, err)
		}
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range f.Tensors {
			files[i] = append(files[i], f.Data(s)...)
		}
		f.Close()
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("fused experts have other data than separate ones")
	}
}

// fuseExperts writes a checkpoint with Mixtral's experts in fused tensors, as transformers 5 does.
func fuseExperts(t *testing.T, from string) (dir string) {
	t.Helper()
	ck, err := safetensors.Open(from, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	var specs []safetensors.TensorSpec
	var data [][]byte
	add := func(name string, shape []int64, from ...string) {
		var all []byte
		for _, name := range from {
			s, ok := ck.Lookup(name)
			if !ok {
				t.Fatalf("no %q", name)
			}
			b, err := ck.Bytes(s)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		specs, data = append(specs, safetensors.TensorSpec{Name: name, Dtype: packing.F32, Shape: shape}), append(data, all)
	}
	const experts = 4
	for _, s := range ck.Tensors() {
		at, rest, mixture := strings.Cut(s.Name, ".block_sparse_moe.")
		switch {
		case !mixture:
			add(s.Name, s.Shape, s.Name)
		case rest == "gate.weight":
			add(at+".mlp.gate.weight", s.Shape, s.Name)
			var gateUp, down []string
			for i := range experts {
				in := fmt.Sprintf("%s.block_sparse_moe.experts.%d.", at, i)
				gateUp, down = append(gateUp, in+"w1.weight", in+"w3.weight"), append(down, in+"w2.weight")
			}
			add(at+".mlp.experts.gate_up_proj", []int64{experts, 2 * testmodels.Intermediate, testmodels.Hidden}, gateUp...)
			add(at+".mlp.experts.down_proj", []int64{experts, testmodels.Hidden, testmodels.Intermediate}, down...)
		}
	}
	dir = filepath.Join(t.TempDir(), "fused")
	w, err := safetensors.Create(dir, specs, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range data {
		if err := w.WriteAt(i, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o666)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadBackLayers(t *testing.T) {
	for name, want := range map[string]int{"llama3": 2, "gemma2": 2, "gemma3": 3, "smollm3": 4, "mixtral": 2} {
		config, err := os.ReadFile(filepath.Join("..", "..", "model", "testdata", "torch", name, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := readBackLayers(config); err != nil || n != want {
			t.Errorf("%s: %d, %v; want %d", name, n, err, want)
		}
	}
}

// Logits that are no numbers on both sides are equal; on one side they are a difference.
func TestDifference(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		want, got []float32
		d         float64
	}{
		{[]float32{1, 4}, []float32{1, 4}, 0},
		{[]float32{1, 4}, []float32{2, 4}, 0.25},
		{[]float32{0, 0}, []float32{0, 2}, 2},
		{[]float32{nan, nan}, []float32{nan, nan}, 0},
		{[]float32{nan, 4, inf, 2}, []float32{nan, 4, inf, 1}, 0.25},
		{[]float32{1, nan}, []float32{1, 4}, math.NaN()},
		{[]float32{1, 4}, []float32{1, nan}, math.NaN()},
		{[]float32{inf, 4}, []float32{-inf, 4}, math.Inf(1)},
		{[]float32{1, inf}, []float32{1, 4}, math.Inf(1)},
	} {
		if d := difference(c.want, c.got); d != c.d && !(math.IsNaN(d) && math.IsNaN(c.d)) {
			t.Errorf("%v, %v: %v, want %v", c.want, c.got, d, c.d)
		}
	}
}

// TestRerouted: positions of a mixture that differ are counted, and figures of the others are numbers,
// which JSON can hold.
func TestRerouted(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	want := []float32{1, 4, 1, 4, 1, 4, 1, 4} // four positions
	for _, c := range []struct {
		got      []float32
		experts  bool
		rerouted int // -1: an error
	}{
		{want, false, 0},
		{[]float32{1, 4, 1, nan, 1, inf, 1, 4.001}, true, 2},
		{[]float32{1, 4, 2, 4, 1, 4, 1, 4}, true, 1},
		{[]float32{1, 4, 2, 4, 1, 4, 1, 4}, false, -1},
		{[]float32{1, nan, 1, 4, 1, 4, 1, 4}, false, -1},
		{[]float32{2, 4, 2, 4, inf, 4, 1, 4}, true, -1},
	} {
		r, err := judge(want, c.got, 2, c.experts)
		if (err != nil) != (c.rerouted < 0) || err == nil && (r.Rerouted != c.rerouted || r.Difference > maxDifference || r.Tokens != 4) {
			t.Errorf("%v, experts %v: %+v, %v", c.got, c.experts, r, err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	}
}

// TestReadBackEqualHead quantizes a checkpoint whose lm_head is a copy of the embedding, so that the
// file stores both once.
func TestReadBackEqualHead(t *testing.T) {
	testshared.SlowEmulated(t, "TestReadBack runs there")
	dir := t.TempDir()
	testmodels.Find(t, "mixtral").Write(t, dir)
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var tensors [2][]byte
	for i, name := range []string{"model.embed_tokens.weight", "lm_head.weight"} {
		s, ok := ck.Lookup(name)
		if !ok {
			t.Fatalf("no %q", name)
		}
		b, err := ck.Bytes(s)
		if err != nil {
			t.Fatal(err)
		}
		tensors[i] = bytes.Clone(b)
	}
	path := filepath.Join(ck.Dir(), ck.Files()[0].Name)
	ck.Close()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(data, tensors[1], tensors[0], 1), 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := ggufPlanOf(t, dir, 4, 0).Write(context.Background(), filepath.Join(t.TempDir(), "m.gguf"))
	if err != nil || r.Shared != 1 || r.ReadBack == nil || r.ReadBack.Difference > 2e-5 {
		t.Fatalf("%+v, %v", r, err)
	}
}
