package conversion

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// planCheckpoint is the plan of a checkpoint in a format, made of tensors.
func planCheckpoint(t *testing.T, f hfquant.Format, config string, tensors []testTensor, r quantizer.Recipe) (*write.Job, error) {
	t.Helper()
	r.Targets = []quantizer.Target{quantizer.CheckpointTarget(f)}
	ck := openCheckpoint(t, writeCheckpoint(t, config, tensors...))
	return quantizing(ck, []byte(config), Options{Recipe: r, Threads: 2, Checkpoint: &tocheckpoint.Options{Format: f}})
}

// line is the plan's line of a tensor.
func lineOf(t *testing.T, p *write.Job, name string) *plan.Tensor {
	t.Helper()
	i := slices.IndexFunc(p.Tensors, func(l *plan.Tensor) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("the plan has no %s", name)
	}
	return p.Tensors[i]
}

// TestCheckpointWeights: unquantized tensors keep their bytes, FP8 scales are multiplied in, F16
// weights have F16 scales, and what is written is found again.
func TestCheckpointWeights(t *testing.T) {
	tensors := append(smallModel(), testTensor{name: "model.layers.0.self_attn.rope", dtype: packing.U8, shape: []int64{3}})
	skip := quantizer.Recipe{Rules: []quantizer.Rule{{Match: "*.v_proj", Skip: true}, {Match: "*.k_proj", Skip: true}}}
	p, err := planCheckpoint(t, hfquant.TorchAO, smallLlama, tensors, skip)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new", "model")
	r, err := p.Write(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Output != dir || r.Shards != 0 || r.OutputBytes != p.OutputBytes {
		t.Errorf("%+v", r)
	}
	ck, source := openCheckpoint(t, dir), p.In.(*fromcheckpoint.Input).Ck
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	q, err := hfquant.Find(ck, config)
	if err != nil {
		t.Fatal(err)
	}
	scales := map[string]packing.Dtype{}
	for _, w := range q.Weights {
		scales[w.Name] = w.Scheme.Scales
	}
	if len(scales) != 5 || scales["model.layers.0.self_attn.o_proj.weight"] != packing.F16 || scales["model.layers.0.self_attn.q_proj.weight"] != packing.BF16 {
		t.Errorf("%v", scales)
	}
	const scaled = "model.layers.0.self_attn.k_proj.weight"
	for _, s := range source.Tensors() {
		got, ok := ck.Lookup(s.Name)
		if _, quantized := scales[s.Name]; quantized || strings.HasSuffix(s.Name, "_scale_inv") {
			if ok {
				t.Errorf("%s is stored", s.Name)
			}
			continue
		}
		if s.Name == scaled {
			compareScaled(t, source, ck, s, got)
			continue
		}
		a, _ := source.Bytes(s)
		b, err := ck.Bytes(got)
		if err != nil || got.DtypeName != s.DtypeName || !slices.Equal(got.Shape, s.Shape) || !bytes.Equal(a, b) {
			t.Errorf("%s has other bytes (%s, %v, %v)", s.Name, got.DtypeName, got.Shape, err)
		}
	}
	// Weights that are compared with the source's by another function than the writer's.
	for _, w := range q.Weights {
		src, _ := source.Lookup(w.Name)
		weights, err := source.Weights(src, safetensors.WeightsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stored := func(dst []float32, row int) {
			var r hfquant.Row
			if err := w.Read(&r, int64(row)); err != nil {
				t.Fatal(err)
			}
			for k, c := range r.Codes {
				dst[k] = float32(c) * r.Scales[k*len(r.Scales)/len(r.Codes)]
			}
		}
		err = togguf.CompareRows(w.Name, weights.Rows, weights.Cols, false, func(dst []float32, row int) error { return weights.Read(dst, row, 1) }, stored)
		if err != nil {
			t.Error(err)
		}
	}
}

// compareScaled wants FP8 weights times their scales, as float32.
func compareScaled(t *testing.T, source, ck *safetensors.Checkpoint, s, got safetensors.Tensor) {
	t.Helper()
	read := func(ck *safetensors.Checkpoint, s safetensors.Tensor) []float32 {
		w, err := ck.Weights(s, safetensors.WeightsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, w.Rows*w.Cols)
		if err := w.Read(x, 0, w.Rows); err != nil {
			t.Fatal(err)
		}
		return x
	}
	if got.Dtype != packing.F32 || !slices.Equal(read(source, s), read(ck, got)) {
		t.Errorf("%s: the scales are not multiplied in", s.Name)
	}
}

// TestCheckpointUnfit: fused experts, weights stored as inputs x outputs and rows that groups do
// not divide stay unquantized, and the plan says why.
func TestCheckpointUnfit(t *testing.T) {
	const gpt2 = `{"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 1, "vocab_size": 512}`
	p, err := planCheckpoint(t, hfquant.GPTQ, gpt2, []testTensor{
		{name: "h.0.attn.c_attn.weight", dtype: packing.F32, shape: []int64{64, 96}},
		{name: "score.weight", dtype: packing.F32, shape: []int64{32, 64}},
	}, quantizer.Recipe{})
	if err != nil {
		t.Fatal(err)
	}
	if l := lineOf(t, p, "h.0.attn.c_attn.weight"); l.Action != plan.ActionUnquantized || !strings.Contains(l.Reason, "inputs x outputs") {
		t.Errorf("%+v", l)
	}
	experts := append(smallModel(),
		testTensor{name: "model.layers.0.mlp.experts.gate_up_proj", dtype: packing.BF16, shape: []int64{4, 64, 64}},
		testTensor{name: "model.layers.1.mlp.up_proj.weight", dtype: packing.BF16, shape: []int64{64, 72}})
	if p, err = planCheckpoint(t, hfquant.MLX, smallLlama, experts, quantizer.Recipe{}); err != nil {
		t.Fatal(err)
	}
	if l := lineOf(t, p, "model.layers.0.mlp.experts.gate_up_proj"); l.Action != plan.ActionUnquantized || l.Reason == "" {
		t.Errorf("%+v", l)
	}
	if l := lineOf(t, p, "model.layers.1.mlp.up_proj.weight"); l.Action != plan.ActionUnquantized || !strings.Contains(l.Reason, "groups of 32 columns do not divide rows of 72") {
		t.Errorf("%+v", l)
	}
	if !slices.ContainsFunc(p.Warnings, func(s string) bool { return strings.Contains(s, "rows of 72") }) {
		t.Errorf("warnings %q", p.Warnings)
	}
}

// TestCheckpointHead: an lm_head of its own stays unquantized in formats that vLLM loads, unless a
// rule names it; linear layers that vLLM merges are named if they differ.
func TestCheckpointHead(t *testing.T) {
	untied := strings.Replace(smallLlama, `"tie_word_embeddings": true`, `"tie_word_embeddings": false`, 1)
	tensors := append(unscaled(smallModel()), testTensor{name: "lm_head.weight", dtype: packing.BF16, shape: []int64{32, 64}})
	tensors[0].shape = []int64{32, 64}
	for _, c := range []struct {
		f     hfquant.Format
		rules []quantizer.Rule
		want  plan.Action
		warn  string
	}{
		{hfquant.GPTQ, nil, plan.ActionUnquantized, ""},
		{hfquant.GPTQ, []quantizer.Rule{{Match: "*", Bits: 8}}, plan.ActionUnquantized, ""},
		{hfquant.GPTQ, []quantizer.Rule{{Match: "lm_head", Bits: 8}}, plan.ActionQuantize, "expect an unquantized lm_head"},
		{hfquant.MLX, nil, plan.ActionQuantize, ""},
		{hfquant.GPTQ, []quantizer.Rule{{Match: "*.q_proj", Bits: 8}}, plan.ActionUnquantized, "q_proj.weight\": vLLM merges this weight with others"},
		{hfquant.GPTQ, []quantizer.Rule{{Match: "*.o_proj", Group: new(16)}}, plan.ActionUnquantized, "o_proj.weight\": vLLM multiplies all weights with one kernel"},
		{hfquant.PackQuantized, []quantizer.Rule{{Match: "*.o_proj", Group: new(16)}}, plan.ActionUnquantized, "o_proj.weight\": vLLM has no kernels"},
	} {
		p, err := planCheckpoint(t, c.f, untied, tensors, quantizer.Recipe{Rules: c.rules})
		if err != nil {
			t.Fatal(err)
		}
		if l := lineOf(t, p, "lm_head.weight"); l.Action != c.want {
			t.Errorf("%s, %v: %+v", c.f, c.rules, l)
		}
		if c.warn == "" && len(p.Warnings) > 0 || !strings.Contains(strings.Join(p.Warnings, "\n"), c.warn) {
			t.Errorf("%s, %v: warnings %q", c.f, c.rules, p.Warnings)
		}
		if len(p.Warnings) > 1 {
			t.Errorf("%s, %v: two warnings of one weight: %q", c.f, c.rules, p.Warnings)
		}
	}
}

// TestCheckpointReadBack: a byte that changes between the writing and the reading back is found,
// and nothing appears.
func TestCheckpointReadBack(t *testing.T) {
	testshared.SlowEmulated(t, "files are compared by the same code natively")
	for _, f := range []hfquant.Format{hfquant.IntQuantized, hfquant.PackQuantized, hfquant.GPTQ, hfquant.MLX, hfquant.TorchAO} {
		p, err := planCheckpoint(t, f, smallLlama, smallModel(), quantizer.Recipe{})
		if err != nil {
			t.Fatal(err)
		}
		o := p.Out.(*tocheckpoint.Output)
		for i, spec := range o.Specs {
			place := o.Layout.Places[i]
			if strings.HasSuffix(spec.Name, "weight_scale_inv") || place.Size == 0 {
				continue
			}
			dir := filepath.Join(t.TempDir(), "model")
			temps, j, err := p.WriteTemp(context.Background(), dir, write.Options{})
			if err != nil {
				t.Fatal(err)
			}
			target := j.Target.(*tocheckpoint.Target)
			if err := o.Check(target, &write.Written{Codes: &plan.Codes{}, Temp: func(i int) string { return temps.Files[i].Temp() }}); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			flip(t, temps.Files[len(target.First)+place.Shard].Temp(), place.Offset)
			if err := o.Check(target, &write.Written{Codes: &plan.Codes{}, Temp: func(i int) string { return temps.Files[i].Temp() }}); err == nil {
				t.Errorf("%s: a changed byte of %s is not found", f, spec.Name)
			}
			temps.Abort()
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
}

// TestCheckpointTwoJobs: weights that another job puts into the directory in the meantime stay.
func TestCheckpointTwoJobs(t *testing.T) {
	p, err := planCheckpoint(t, hfquant.GPTQ, smallLlama, smallModel(), quantizer.Recipe{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors")
	var once sync.Once
	progress := func(int64) {
		once.Do(func() {
			if err := os.WriteFile(path, []byte("theirs"), 0o666); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := p.WriteWith(context.Background(), dir, write.Options{Progress: progress}); err == nil || !strings.Contains(err.Error(), "holds files already (model.safetensors)") {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if b, err := os.ReadFile(path); string(b) != "theirs" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestCheckpointTransposed: a format that holds no weight of the model says why.
func TestCheckpointTransposed(t *testing.T) {
	config := `{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 1, "vocab_size": 512}`
	tensors := []testTensor{{name: "transformer.h.0.attn.c_attn.weight", dtype: packing.BF16, shape: []int64{64, 192}}}
	_, err := planCheckpoint(t, hfquant.GPTQ, config, tensors, quantizer.Recipe{})
	if err == nil || !strings.Contains(err.Error(), `no weight would be quantized: "transformer.h.0.attn.c_attn.weight": the model stores this weight as inputs x outputs`) {
		t.Error(err)
	}
}

// flip changes a bit of a file.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointExport: an export of a file of the format's target has the bytes of the checkpoint
// that is written at once, and damaged assets fail before any work.
func TestCheckpointExport(t *testing.T) {
	for _, f := range []hfquant.Format{hfquant.GPTQ, hfquant.MLX} {
		p, err := planCheckpoint(t, f, smallLlama, unscaled(smallModel()), quantizer.Recipe{})
		if err != nil {
			t.Fatal(err)
		}
		direct := filepath.Join(t.TempDir(), "model")
		if _, err := p.Write(context.Background(), direct); err != nil {
			t.Fatal(err)
		}
		err = p.WriteTemporary(context.Background(), filepath.Join(t.TempDir(), "model"), write.Options{}, func(temp string) error {
			g, err := gqf.Open(temp, gqf.Options{})
			if err != nil {
				return err
			}
			defer g.Close()
			e, err := NewExport(g, temp, ExportOptions{Checkpoint: &tocheckpoint.Options{Format: f}})
			if err != nil {
				return err
			}
			exported := filepath.Join(t.TempDir(), "model")
			if _, err := e.Write(context.Background(), exported); err != nil {
				return err
			}
			entries, err := os.ReadDir(direct)
			for _, entry := range entries {
				a, _ := os.ReadFile(filepath.Join(direct, entry.Name()))
				b, _ := os.ReadFile(filepath.Join(exported, entry.Name()))
				if len(a) == 0 || !bytes.Equal(a, b) {
					t.Errorf("%s: %s differs", f, entry.Name())
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// unscaled are tensors without FP8 scales.
func unscaled(list []testTensor) []testTensor {
	return slices.DeleteFunc(list, func(t testTensor) bool { return strings.HasSuffix(t.name, "_scale_inv") })
}
