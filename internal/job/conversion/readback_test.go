package conversion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// ggufPlan is the plan of quantizing a random model to a .gguf file of types with these bits, or of
// unquantized weights (0).
func ggufPlan(t *testing.T, v testmodels.Variant, bits int, split int64) *write.Job {
	t.Helper()
	dir := t.TempDir()
	v.Write(t, dir)
	return ggufPlanOf(t, dir, bits, split)
}

// ggufPlanOf is ggufPlan of the checkpoint in a directory.
func ggufPlanOf(t *testing.T, dir string, bits int, split int64) *write.Job {
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
	if bits == 0 {
		r.Rules = []quantizer.Rule{{Match: "*", Skip: true}}
	}
	p, err := quantizing(ck, config, Options{Recipe: r, GGUF: &togguf.Options{Pre: "llama-bpe", Split: split}})
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
			bits := []int{1, 2, 3, 4, 6, 8}[i%6]
			split := int64(i%3) * 900_000
			if strings.HasPrefix(v.Name, "gemma3n") || strings.HasPrefix(v.Name, "falcon-h1") {
				split *= 5 // a tensor is larger
			}
			if v.Name == "falcon-h1-norm-late" { // a tied embedding, with a factor for each use
				bits = 0
			}
			if bits == 2 || bits == 4 || bits == 8 { // others have blocks of 128 and 256 values
				v, split = v.Narrow(), split/8
			}
			p := ggufPlan(t, v, bits, split)
			path := filepath.Join(t.TempDir(), "m.gguf")
			r, err := p.Write(context.Background(), path)
			if err != nil {
				t.Fatal(err)
			}
			if r.ReadBack == nil || r.ReadBack.Tokens != togguf.ReadBackTokens || r.ReadBack.Difference > 2e-5 {
				t.Errorf("%+v", r.ReadBack)
			}
			t.Logf("%d bits: %+v", bits, r.ReadBack)
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
		packed, err := quantizing(p.In.(*fromcheckpoint.Input).Ck, p.Config, Options{Recipe: p.Recipe})
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
		export, err := NewExport(f, path, ExportOptions{GGUF: togguf.Options{Pre: "llama-bpe"}})
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
	tensor := func(o *togguf.Output, name string) *llamacpp.Tensor {
		for i := range o.Model.Tensors {
			if o.Model.Tensors[i].Name == name {
				return &o.Model.Tensors[i]
			}
		}
		t.Fatalf("no tensor %q", name)
		return nil
	}
	swap := func(a, b string) func(o *togguf.Output) {
		return func(o *togguf.Output) {
			x, y := tensor(o, a), tensor(o, b)
			x.Name, y.Name = y.Name, x.Name
		}
	}
	for _, c := range []struct {
		name, variant, want string
		bits                int
		spoil               func(o *togguf.Output)
	}{
		{"permutation", "llama3", "logits on 8 tokens differ", 2, func(o *togguf.Output) { tensor(o, "blk.1.attn_q.weight").Parts[0].Order = llamacpp.Order{} }},
		{"names", "qwen3", "logits on 8 tokens differ", 1, swap("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight")},
		{"norm", "gemma2", "logits on 8 tokens differ", 4, func(o *togguf.Output) { tensor(o, "blk.1.ffn_norm.weight").Parts[0].Add = 0 }},
		{"norms", "gemma3", "logits on 8 tokens differ", 4, swap("blk.0.ffn_norm.weight", "blk.0.post_ffw_norm.weight")},
		{"rope factors", "phi4-mini", "logits on 8 tokens differ", 4, func(o *togguf.Output) { tensor(o, "rope_factors_short.weight").Values[3] *= 2 }},
		{"key", "llama3", "logits on 8 tokens differ", 4, func(o *togguf.Output) {
			for i, p := range o.Model.Metadata {
				if p.Key == "llama.rope.freq_base" {
					o.Model.Metadata[i].Value = float32(10000)
				}
			}
		}},
		{"rows of another layer", "llama2-linear", "logits on 8 tokens differ", 2, func(o *togguf.Output) {
			a, b := regionOf(o, "model.layers.0.mlp.up_proj.weight"), regionOf(o, "model.layers.1.mlp.up_proj.weight")
			a.Tensor, b.Tensor = b.Tensor, a.Tensor
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := ggufPlan(t, testmodels.Find(t, c.variant), c.bits, 0)
			c.spoil(p.Out.(*togguf.Output))
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
func regionOf(o *togguf.Output, name string) *togguf.Region {
	for _, it := range o.Items {
		if e := it.Common(); e.Name() == name {
			return &o.Regions[e.Index][0][0]
		}
	}
	return nil
}

// TestCompareRows holds codes to the rows that they were made of.
func TestCompareRows(t *testing.T) {
	p := ggufPlan(t, testmodels.Find(t, "qwen3"), 4, 0)
	var q *plan.Quantized
	for _, it := range p.Items {
		if it.Common().Name() == "model.layers.0.mlp.up_proj.weight" {
			q = it.(*plan.Quantized)
		}
	}
	w, err := p.In.(*fromcheckpoint.Input).Ck.Weights(*q.Src, safetensors.WeightsOptions{})
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
		edit  func(dst []float32, row int)
		want  string
	}{
		{name: "codes", edit: func(dst []float32, row int) { w.Widen(dst, row, 1); sign(dst) }},
		{name: "codes of other rows", edit: func(dst []float32, row int) { w.Widen(dst, (row+1)%int(q.Rows), 1); sign(dst) }, want: "16 of 16 rows"},
		{name: "codes in two rows", edit: func(dst []float32, row int) { w.Widen(dst, row, 1); dst[0] += float32(row % 2) }},
		{name: "weights", exact: true, edit: func(dst []float32, row int) { w.Widen(dst, row, 1) }},
		{name: "one weight", exact: true, edit: func(dst []float32, row int) {
			if w.Widen(dst, row, 1); row == 0 {
				dst[9]++
			}
		}, want: "1 of 16 rows"},
	} {
		err := togguf.CompareRows("up_proj", int(q.Rows), int(q.Cols), c.exact, source, c.edit)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestReadBackFused exports experts that a checkpoint has fused: the same tensors as of separate
// ones.
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
		config, err := os.ReadFile(filepath.Join("..", "..", "..", "internal", "lm", "forward", "testdata", "torch", name, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := togguf.ReadBackLayers(config); err != nil || n != want {
			t.Errorf("%s: %d, %v; want %d", name, n, err, want)
		}
	}
}

// TestReadBackEqualHead quantizes a checkpoint whose lm_head is a copy of the embedding, so that
// the file stores both once.
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
