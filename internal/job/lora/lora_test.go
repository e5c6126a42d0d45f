package lora

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/packing"
)

func open(t *testing.T, path string) *safetensors.Checkpoint {
	t.Helper()
	ck, err := safetensors.Open(path, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

func merge(t *testing.T, base string, names ...string) *Merged {
	t.Helper()
	m, err := Open(t.Context(), open(t, base), names)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func read(t *testing.T, ck *safetensors.Checkpoint, tensor safetensors.Tensor) []float32 {
	t.Helper()
	w, err := ck.Weights(tensor, safetensors.WeightsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, tensor.Numel())
	if err := w.Read(x, 0, w.Slices*w.Rows); err != nil {
		t.Fatal(err)
	}
	return x
}

// difference is the largest difference of two tensors, as a part of the largest value.
func difference(a, b []float32) float64 {
	d, most := 0.0, 0.0
	for i, v := range a {
		d, most = max(d, math.Abs(float64(v)-float64(b[i]))), max(most, math.Abs(float64(v)))
	}
	return d / most
}

// cases lists the adapters of testdata with their models.
func cases(t *testing.T) map[string]string {
	t.Helper()
	list, err := filepath.Glob("testdata/*/base.txt")
	if err != nil || len(list) < 8 {
		t.Fatalf("%d adapters, %v", len(list), err)
	}
	found := map[string]string{}
	for _, path := range list {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Dir(path)] = filepath.Join("testdata", strings.TrimSpace(string(b)))
	}
	return found
}

// TestPEFT compares merged weights with PEFT's own merge: the tensors that change, and no others.
func TestPEFT(t *testing.T) {
	for dir, base := range cases(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			from := open(t, base)
			want := open(t, filepath.Join(dir, "merged.safetensors"))
			ck, err := merge(t, base, dir).Checkpoint(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			if len(ck.Tensors()) != len(from.Tensors()) {
				t.Errorf("%d tensors, and the model has %d", len(ck.Tensors()), len(from.Tensors()))
			}
			changed := 0
			for _, tensor := range from.Tensors() {
				got, ok := ck.Lookup(tensor.Name)
				if !ok || !slices.Equal(got.Shape, tensor.Shape) {
					t.Fatalf("%s: shape %v, want %v", tensor.Name, got.Shape, tensor.Shape)
				}
				expected, ok := want.Lookup(tensor.Name)
				if !ok {
					if !slices.Equal(read(t, ck, got), read(t, from, tensor)) {
						t.Errorf("%s changed, and PEFT does not change it", tensor.Name)
					}
					continue
				}
				changed++
				x := read(t, want, expected)
				if d := difference(x, read(t, ck, got)); d > 2e-7 {
					t.Errorf("%s differs from PEFT's by %g of its largest value", tensor.Name, d)
				}
				if difference(x, read(t, from, tensor)) < 1e-3 {
					t.Errorf("%s: the adapter changes too little to test anything", tensor.Name)
				}
			}
			if changed != len(want.Tensors()) || changed == 0 {
				t.Errorf("%d tensors changed, PEFT changes %d", changed, len(want.Tensors()))
			}
		})
	}
}

// TestReadAt reads a merged file from all offsets in pieces of many sizes, and compares Write.
func TestReadAt(t *testing.T) {
	for dir, base := range cases(t) {
		m := merge(t, base, dir)
		list, err := m.files()
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "merged")
		done := int64(0)
		if err := m.Write(t.Context(), out, 1, func(n int64) { done += n }); err != nil {
			t.Fatal(err)
		}
		size, err := m.Size()
		if err != nil || done != size {
			t.Errorf("%s: progress of %d bytes, %d are written, %v", dir, done, size, err)
		}
		whole, err := os.ReadFile(filepath.Join(out, list[0].name))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 3, 7, 64, 100, 1000} {
			for off := 0; off < len(whole); off += 1 + n/2*3 {
				p := make([]byte, min(n, len(whole)-off))
				if err := list[0].readAt(t.Context(), p, int64(off)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(p, whole[off:][:len(p)]) {
					t.Fatalf("%s: %d bytes from %d on differ", dir, n, off)
				}
			}
		}
		ck := open(t, out)
		if got := provenance.AdaptersOf(ck); !slices.Equal(got, m.Records()) || len(got) != 1 || len(got[0].SHA256) != 64 || got[0].Name != filepath.Base(dir) {
			t.Errorf("%s: the merged checkpoint records %+v", dir, got)
		}
		if _, err := os.Stat(filepath.Join(out, "config.json")); err != nil {
			t.Error(err)
		}
	}
}

// TestScale merges two adapters, with scales, and compares with the sum of their changes.
func TestScale(t *testing.T) {
	const name = "model.layers.0.self_attn.q_proj.weight"
	weights := func(names ...string) []float32 {
		ck := open(t, "testdata/llama")
		if len(names) > 0 {
			var err error
			if ck, err = merge(t, "testdata/llama", names...).Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
		}
		tensor, _ := ck.Lookup(name)
		return read(t, ck, tensor)
	}
	base, a, b := weights(), weights("testdata/rslora"), weights("testdata/ranks")
	want := make([]float32, len(base))
	for i, v := range base {
		want[i] = v + 0.5*(a[i]-v) - 2*(b[i]-v)
	}
	if d := difference(want, weights("testdata/rslora=0.5", "testdata/ranks=-2")); d > 1e-6 {
		t.Errorf("two adapters with scales differ from the sum of their changes by %g", d)
	}
}

// tensors are the F32 tensors of a file.
type tensors map[string]tensor

type tensor struct {
	shape  []int64
	values []float32
}

func (ts tensors) write(t *testing.T, dir string, opts safetensors.WriteOptions) {
	t.Helper()
	var specs []safetensors.TensorSpec
	names := slices.Sorted(maps.Keys(ts))
	for _, name := range names {
		specs = append(specs, safetensors.TensorSpec{Name: name, Dtype: packing.F32, Shape: ts[name].shape})
	}
	w, err := safetensors.Create(dir, specs, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, name := range names {
		var b []byte
		for _, v := range ts[name].values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		if err := w.WriteAt(i, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, path string) tensors {
	ts := tensors{}
	ck := open(t, path)
	for _, x := range ck.Tensors() {
		ts[x.Name] = tensor{x.Shape, read(t, ck, x)}
	}
	return ts
}

// variant writes a copy of an adapter with some changes.
func variant(t *testing.T, from string, edit func(c map[string]any, ts tensors)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "variant")
	ts, c := load(t, filepath.Join(from, weightsName)), map[string]any{}
	raw, err := os.ReadFile(filepath.Join(from, configName))
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	edit(c, ts)
	ts.write(t, dir, safetensors.WriteOptions{})
	if raw, err = json.Marshal(c); err == nil {
		err = os.WriteFile(filepath.Join(dir, configName), raw, 0o666)
	}
	if err == nil {
		err = os.Rename(filepath.Join(dir, safetensors.SingleName), filepath.Join(dir, weightsName))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestErrors(t *testing.T) {
	const q = "base_model.model.model.layers.0.self_attn.q_proj."
	const a, b = q + "lora_A.weight", q + "lora_B.weight"
	for _, tt := range []struct {
		name, from, suffix, want string
		edit                     func(c map[string]any, ts tensors)
	}{
		{"no tensor", "plain", "", `has no tensor "model.layers.7.self_attn.q_proj.weight": does the adapter belong to another model?`, func(_ map[string]any, ts tensors) {
			for _, end := range []string{"lora_A.weight", "lora_B.weight"} {
				ts[strings.Replace(q+end, ".0.", ".7.", 1)] = ts[q+end]
			}
		}},
		{"one factor", "plain", "", "no other factor", func(_ map[string]any, ts tensors) { delete(ts, b) }},
		{"rank", "plain", "", "its rank is 4, lora_B's is 4, and adapter_config.json states 5", func(c map[string]any, _ tensors) { c["r"] = 5 }},
		{"rank pattern", "plain", "", "states 2", func(c map[string]any, _ tensors) { c["rank_pattern"] = map[string]int{"q_proj": 2} }},
		{"ranks of factors", "plain", "", "lora_B's is 2", func(_ map[string]any, ts tensors) {
			ts[b] = tensor{[]int64{32, 2}, ts[b].values}
		}},
		{"shape", "plain", "", "do not fit weights of shape [16 16]", func(_ map[string]any, ts tensors) {
			ts[b] = tensor{[]int64{8, 4}, ts[b].values[:32]}
		}},
		{"NaN", "plain", "", "row 1, column 2 is NaN", func(_ map[string]any, ts tensors) { ts[a].values[16+2] = float32(math.NaN()) }},
		{"overflow", "plain", "", "after the adapter is merged", func(_ map[string]any, ts tensors) {
			ts[a].values[0], ts[b].values[0] = 3e38, 3e38
		}},
		{"vocabulary", "saved", "", "its shape is [25 16]", func(_ map[string]any, ts tensors) {
			const head = "base_model.model.lm_head.weight"
			ts[head] = tensor{[]int64{25, 16}, append(ts[head].values, make([]float32, 16)...)}
		}},
		{"scaled replacement", "saved", "=2", "leave the scale out", func(map[string]any, tensors) {}},
		{"scaled DoRA", "dora", "=2", "DoRA has no scale", func(map[string]any, tensors) {}},
		{"DoRA without its vector", "plain", "", "use_dora", func(c map[string]any, _ tensors) { c["use_dora"] = true }},
		{"zero", "plain", "=0", "a finite number other than 0", func(map[string]any, tensors) {}},
		{"type", "plain", "", `peft_type "IA3"`, func(c map[string]any, _ tensors) { c["peft_type"] = "IA3" }},
		{"PiSSA", "plain", "", "belongs to other weights", func(c map[string]any, _ tensors) { c["init_lora_weights"] = "pissa_niter_16" }},
		{"parameters", "plain", "", "target_parameters is set", func(c map[string]any, _ tensors) { c["target_parameters"] = []string{"experts"} }},
		{"pattern", "plain", "", `pattern "("`, func(c map[string]any, _ tensors) { c["alpha_pattern"] = map[string]int{"(": 2} }},
		{"name", "plain", "", "expected a name of PEFT", func(_ map[string]any, ts tensors) { ts["x"] = ts[a] }},
		{"other part", "plain", "", "does not merge such a part", func(_ map[string]any, ts tensors) { ts[q+"lora_B.bias"] = ts[a] }},
		{"empty", "plain", "", "has no tensors", func(_ map[string]any, ts tensors) { clear(ts) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := variant(t, "testdata/"+tt.from, tt.edit)
			m, err := Open(t.Context(), open(t, "testdata/llama"), []string{dir + tt.suffix})
			if err == nil {
				defer m.Close()
				err = m.Write(t.Context(), filepath.Join(t.TempDir(), "out"), 1, func(int64) {})
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	for dir, want := range map[string]string{
		"testdata/llama":  "adapter_config.json",
		"testdata/absent": "adapter_config.json",
	} {
		if _, err := Open(t.Context(), open(t, "testdata/llama"), []string{dir}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
	if _, err := Open(t.Context(), open(t, "testdata/llama"), []string{"testdata/saved", "testdata/dora", "testdata/dora"}); err == nil || !strings.Contains(err.Error(), "an adapter before it changes") {
		t.Errorf("DoRA after DoRA: %v", err)
	}
}

// TestTied merges an adapter of the embedding into a checkpoint that stores the tied lm_head too.
func TestTied(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	ts := load(t, "testdata/tied")
	ts["lm_head.weight"] = ts["model.embed_tokens.weight"]
	ts.write(t, dir, safetensors.WriteOptions{MaxShardBytes: 2000})
	raw, err := os.ReadFile("testdata/tied/config.json")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := merge(t, dir, "testdata/tied-embedding")
	out := filepath.Join(t.TempDir(), "merged")
	if err := m.Write(t.Context(), out, 2, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	got, want := load(t, out), load(t, "testdata/tied-embedding/merged.safetensors")["model.embed_tokens.weight"]
	for _, name := range []string{"lm_head.weight", "model.embed_tokens.weight"} {
		if d := difference(want.values, got[name].values); d > 2e-7 {
			t.Errorf("%s differs from PEFT's embedding by %g", name, d)
		}
	}
	if files := open(t, out).Files(); len(files) < 3 || len(files) != len(open(t, dir).Files()) {
		t.Errorf("%d files", len(files))
	}
	_, err = Open(context.Background(), open(t, "testdata/tied"), []string{variant(t, "testdata/plain", func(_ map[string]any, ts tensors) {
		for name := range ts {
			if !strings.Contains(name, "lm_head.lora") {
				delete(ts, name)
			}
		}
	})})
	if err == nil || !strings.Contains(err.Error(), "tied to the embedding") {
		t.Errorf("an adapter of a tied lm_head: %v", err)
	}
}

func TestSplit(t *testing.T) {
	odd := filepath.Join(t.TempDir(), "a=2")
	if err := os.Mkdir(odd, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		in, dir string
		scale   float64
	}{{"x", "x", 1}, {"x=0.5", "x", 0.5}, {"a=b=-1e1", "a=b", -10}, {odd, odd, 1}, {odd + "=3", odd, 3}} {
		if dir, scale, err := Split(tt.in); dir != tt.dir || scale != tt.scale || err != nil {
			t.Errorf("%s: %s, %v, %v", tt.in, dir, scale, err)
		}
	}
	for _, in := range []string{"x=", "x=y", "x=NaN", "x=inf", "x=0"} {
		if _, _, err := Split(in); err == nil {
			t.Errorf("%s was accepted", in)
		}
	}
}

// TestPatterns holds the choice of a pattern to PEFT's get_pattern_key: the first that matches the
// end of the module's name at a dot.
func TestPatterns(t *testing.T) {
	var p patterns
	if err := json.Unmarshal([]byte(`{"k_proj": 1, "^model.layers.1": 2, "mlp.*": 3, "layers.0.k_proj": 4}`), &p); err != nil {
		t.Fatal(err)
	}
	for module, want := range map[string]float64{
		"model.layers.0.k_proj": 1, "k_proj": 1, "model.layers.0.xk_proj": 9, "model.layers.1": 2, "a.model.layers.1": 9, "model.mlp.up": 3,
	} {
		if got := p.of(module, 9); got != want {
			t.Errorf("%s: %v, want %v", module, got, want)
		}
	}
	for _, bad := range []string{`[]`, `{"a": "b"}`, `3`} {
		if err := json.Unmarshal([]byte(bad), new(patterns)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

// TestFP8 merges into weights with block scales, which the merged checkpoint has no more.
func TestFP8(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	const module = "model.layers.0.self_attn.q_proj"
	w, err := safetensors.Create(dir, []safetensors.TensorSpec{
		{Name: module + ".weight", Dtype: packing.F8E4M3, Shape: []int64{16, 16}},
		{Name: module + ".weight_scale_inv", Dtype: packing.F32, Shape: []int64{1, 1}},
		{Name: "model.layers.0.mlp.down_proj.weight", Dtype: packing.F8E4M3, Shape: []int64{16, 24}},
		{Name: "model.layers.0.mlp.down_proj.weight_scale_inv", Dtype: packing.F32, Shape: []int64{1, 1}},
	}, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	scale := binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.25))
	ones := func(n int) []byte { return bytes.Repeat([]byte{0x38}, n) }
	for i, b := range [][]byte{ones(256), scale, ones(384), scale} {
		if err := w.WriteAt(i, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	ad := variant(t, "testdata/plain", func(_ map[string]any, ts tensors) {
		for name := range ts {
			if !strings.Contains(name, "q_proj") {
				delete(ts, name)
			}
		}
	})
	ck, err := merge(t, dir, ad).Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	got, _ := ck.Lookup(module + ".weight")
	if _, ok := ck.Lookup(module + ".weight_scale_inv"); ok || got.Dtype != packing.F32 || len(ck.Tensors()) != 3 {
		t.Fatalf("%d tensors, the merged tensor is %s", len(ck.Tensors()), got.DtypeName)
	}
	const name = module + ".weight"
	was, merged := load(t, "testdata/llama")[name], load(t, "testdata/plain/merged.safetensors")[name]
	want := make([]float32, 256)
	for i := range want {
		want[i] = 0.25 + merged.values[i] - was.values[i]
	}
	if d := difference(want, read(t, ck, got)); d > 1e-6 {
		t.Errorf("the merged weights differ by %g", d)
	}
}
