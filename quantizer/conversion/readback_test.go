package conversion

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/testmodels"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/quantizer"
)

// ggufPlan is the plan of quantizing a random model to a .gguf file of types with these bits.
func ggufPlan(t *testing.T, v testmodels.Variant, bits int, split int64) *Plan {
	t.Helper()
	dir := t.TempDir()
	v.Write(t, dir)
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

// runnable are the variants that llama.cpp can express.
func runnable(t *testing.T) (list []testmodels.Variant) {
	for _, v := range testmodels.Variants(t) {
		switch v.Name {
		case "qwen3-moe":
			v = v.With("all", "mlp_only_layers", []int{})
		case "qwen3-moe-unnormalized":
			continue
		}
		list = append(list, v)
	}
	return list
}

func TestReadBack(t *testing.T) {
	for i, v := range runnable(t) {
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

// TestReadBackFile reads an export of a .gqf file back.
func TestReadBackFile(t *testing.T) {
	p := ggufPlan(t, testmodels.Find(t, "mixtral"), 4, 0)
	p.opts.GGUF, p.out = nil, &gqfOutput{Plan: p}
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
	defer f.Close()
	export, err := NewExport(f, path, ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := export.Write(context.Background(), path+".gguf")
	if err != nil || r.ReadBack == nil || r.ReadBack.Difference > 2e-5 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestReadBackFailures spoils the description of a model before it is written: the file must not
// appear.
func TestReadBackFailures(t *testing.T) {
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
		{"norm", "gemma2", "logits on 8 tokens differ", 4, func(o *ggufOutput) { tensor(o, "blk.2.ffn_norm.weight").Parts[0].Add = 0 }},
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
	in := checkpointInput{p}
	w, err := p.ck.Weights(*q.src, safetensors.WeightsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for shift, want := range map[int]string{0: "", 1: "16 of 16 rows of tensor"} {
		err := compareRows(q, 0, in, func(dst []float32, row int) {
			w.Widen(dst, (row+shift)%int(q.rows), 1)
			for i, v := range dst { // 1 bit
				dst[i] = 1
				if v < 0 {
					dst[i] = -1
				}
			}
		})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("rows shifted by %d: %v, want %q", shift, err, want)
		}
	}
}
