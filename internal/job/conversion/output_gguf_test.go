package conversion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/togguf"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

const smallLlama = `{"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1,
	"head_dim": 32, "num_hidden_layers": 1, "vocab_size": 40, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "max_position_embeddings": 64}`

// smallModel are the tensors of smallLlama. Some dtypes are unusual.
func smallModel() []testTensor {
	l := "model.layers.0."
	return []testTensor{
		{name: "model.embed_tokens.weight", dtype: packing.BF16, shape: []int64{40, 64}},
		{name: "model.norm.weight", dtype: packing.BF16, shape: []int64{64}},
		{name: l + "input_layernorm.weight", dtype: packing.F32, shape: []int64{64}},
		{name: l + "post_attention_layernorm.weight", dtype: packing.F64, shape: []int64{64}},
		{name: l + "self_attn.q_proj.weight", dtype: packing.BF16, shape: []int64{64, 64}},
		// An FP8 value is a byte here.
		{name: l + "self_attn.k_proj.weight", dtype: packing.F8E4M3, shape: []int64{32, 64}, value: func(i int) float32 { return float32(i * 7 % 120) }},
		{name: l + "self_attn.k_proj.weight_scale_inv", dtype: packing.F32, shape: []int64{1, 1}, value: func(int) float32 { return 1.0 / 3 }},
		{name: l + "self_attn.v_proj.weight", dtype: packing.F8E4M3, shape: []int64{32, 64}, value: func(i int) float32 { return float32(i * 11 % 126) }},
		{name: l + "self_attn.o_proj.weight", dtype: packing.F16, shape: []int64{64, 64}},
		{name: l + "mlp.gate_proj.weight", dtype: packing.F32, shape: []int64{96, 64}},
		{name: l + "mlp.up_proj.weight", dtype: packing.F64, shape: []int64{96, 64}},
		{name: l + "mlp.down_proj.weight", dtype: packing.BF16, shape: []int64{64, 96}},
	}
}

// planSmall is the plan of a .gguf file of tensors.
func planSmall(t *testing.T, tensors []testTensor, threads int, r quantizer.Recipe, rules ...string) (*write.Job, *safetensors.Checkpoint, error) {
	t.Helper()
	ck := openCheckpoint(t, writeCheckpoint(t, smallLlama, tensors...))
	r.Targets = []quantizer.Target{quantizer.TargetGGUF}
	for _, s := range rules {
		rule, err := quantizer.ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		r.Rules = append(r.Rules, rule)
	}
	p, err := quantizing(ck, []byte(smallLlama), Options{Recipe: r, Threads: threads, GGUF: &togguf.Options{}})
	return p, ck, err
}

// fillGGUF runs a plan in memory.
func fillGGUF(t *testing.T, p *write.Job) []byte {
	t.Helper()
	j, err := p.NewRun(context.Background(), write.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := make(memory, p.OutputBytes)
	j.Out = []io.WriterAt{m}
	if err := j.Fill(context.Background()); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestGGUFUnquantized: unquantized weights keep what the type can hold, with FP8 scales multiplied
// in, and rows of q and k are where llama.cpp has them.
func TestGGUFUnquantized(t *testing.T) {
	p, ck, err := planSmall(t, smallModel(), 2, quantizer.Recipe{}, "re:.*_proj=skip", "*.embed_tokens=skip")
	if err != nil {
		t.Fatal(err)
	}
	data := fillGGUF(t, p)
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	permuted := func(row int) int { return row/32*32 + row%2*16 + row%32/2 }
	same := func(row int) int { return row }
	for _, c := range []struct {
		name, source string
		kind         gguf.TensorType
		row          func(int) int // of the source
	}{
		{"token_embd.weight", "model.embed_tokens.weight", gguf.BF16, same},
		{"output_norm.weight", "model.norm.weight", gguf.F32, nil},
		{"blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight", gguf.F32, nil},
		{"blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight", gguf.F32, nil},
		{"blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", gguf.BF16, permuted},
		{"blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight", gguf.F32, permuted},
		{"blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight", gguf.F16, same},
		{"blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight", gguf.F16, same},
		{"blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight", gguf.F32, same},
		{"blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight", gguf.F32, same},
		{"blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight", gguf.BF16, same},
	} {
		g := f.Tensor(c.name)
		if g == nil || g.Type != c.kind {
			t.Errorf("%s: %+v, want %s", c.name, g, c.kind)
			continue
		}
		if l := line(t, p, c.source); l.Action != plan.ActionUnquantized || l.Type != c.kind.String() || l.Bytes != g.Size {
			t.Errorf("%s in the plan: %+v", c.source, l)
		}
		got := make([]float32, g.Elements())
		if err := g.Type.Decode(got, f.Data(g)); err != nil {
			t.Fatal(err)
		}
		src, _ := ck.Lookup(c.source)
		w, err := ck.Weights(src, safetensors.WeightsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for row := range w.Rows {
			from := row
			if c.row != nil {
				from = c.row(row)
			}
			want := make([]float32, w.Cols)
			if err := w.Read(want, from, 1); err != nil {
				t.Fatal(err)
			}
			if at := row * w.Cols; fmt.Sprint(got[at:at+w.Cols]) != fmt.Sprint(want) {
				t.Errorf("%s: row %d is not row %d of %s", c.name, row, from, c.source)
				break
			}
		}
	}
	if n := len(f.Tensors); n != 11 {
		t.Errorf("%d tensors", n)
	}
	if l := line(t, p, "model.layers.0.self_attn.k_proj.weight_scale_inv"); l.Action != plan.ActionAbsorb {
		t.Errorf("FP8 scales: %+v", l)
	}
}

// TestGGUFThreads: the bytes do not depend on the number of workers.
func TestGGUFThreads(t *testing.T) {
	var first []byte
	for _, threads := range []int{1, 8} {
		p, _, err := planSmall(t, smallModel(), threads, quantizer.Recipe{Bits: 2}, "*.q_proj=4,asymmetric", "*.v_proj=8", "*.o_proj=skip")
		if err != nil {
			t.Fatal(err)
		}
		if l := line(t, p, "model.layers.0.mlp.down_proj.weight"); l.Type != "Q4_0" || !strings.Contains(l.Reason, "Q2_0's blocks of 64") {
			t.Errorf("rows of 96: %+v", l)
		}
		data := fillGGUF(t, p)
		if first == nil {
			first = data
		}
		if !bytes.Equal(first, data) {
			t.Errorf("%d threads give another file", threads)
		}
	}
}

// TestGGUFRefusals: what a .gguf file cannot hold.
func TestGGUFRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(list []testTensor) []testTensor
		rules  []string
		want   string
	}{
		"integers": {func(list []testTensor) []testTensor {
			list[4].dtype, list[4].value = packing.U8, func(i int) float32 { return float32(i % 200) }
			return list
		}, nil, "take a checkpoint that is not quantized"},
		"a tensor without a place": {func(list []testTensor) []testTensor {
			return append(list, testTensor{name: "model.layers.0.extra.weight", dtype: packing.F32, shape: []int64{4, 32}})
		}, nil, "has no place in the model"},
		"a missing tensor": {func(list []testTensor) []testTensor { return list[:len(list)-1] }, nil, "is missing"},
	} {
		_, _, err := planSmall(t, c.change(smallModel()), 1, quantizer.Recipe{}, c.rules...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	var request *quantizer.RequestError
	kQuant := quantizer.Recipe{Rules: []quantizer.Rule{{Match: "*", Mapping: gqf.MappingKQuant}}}
	if _, _, err := planSmall(t, smallModel(), 1, kQuant); !errors.As(err, &request) || !strings.Contains(err.Error(), "K types of 2 to 6 bits, not of 8") {
		t.Errorf("a K type for the embedding's 8 bits: %v", err)
	}
	ck := openCheckpoint(t, writeCheckpoint(t, smallLlama, smallModel()...))
	if _, err := quantizing(ck, []byte(smallLlama), Options{GGUF: &togguf.Options{}}); !errors.As(err, &request) {
		t.Errorf("another target: %v", err)
	}
	if _, err := quantizing(ck, nil, Options{Recipe: quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}}, GGUF: &togguf.Options{}}); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("no config.json: %v", err)
	}
}

// TestGGUFRowsWithoutType: F32 rows that no type's blocks divide are F16, unless a rule skips them
// or a weight is beyond F16's range. A file of target gguf is exported as the same bytes.
func TestGGUFRowsWithoutType(t *testing.T) {
	const name = "model.layers.0.mlp.down_proj.weight"
	config := strings.Replace(smallLlama, `"intermediate_size": 96`, `"intermediate_size": 40`, 1)
	third := func(i int) float32 { return float32(i%7-3) / 3 }
	for _, c := range []struct {
		dtype  packing.Dtype
		value  func(i int) float32
		rule   string
		want   gguf.TensorType
		reason string
	}{
		{packing.F32, third, "*.v_proj=8", gguf.F16, "rows of 40 weights are no whole number of blocks of 32, the smallest of GGUF: rounded to F16, as llama-quantize does"},
		{packing.F64, third, "*.v_proj=8", gguf.F16, "rounded to F16"},
		{packing.F32, third, "*.down_proj=8", gguf.F16, "rounded to F16"},
		{packing.BF16, third, "*.v_proj=8", gguf.BF16, "the smallest of GGUF"},
		{packing.F16, third, "*.v_proj=8", gguf.F16, "the smallest of GGUF"},
		{packing.F32, third, "*.down_proj=skip", gguf.F32, "a rule says skip"},
		{packing.F32, func(i int) float32 { return 65519 * float32(i%2) }, "*.v_proj=8", gguf.F16, "rounded to F16"},
		{packing.F32, func(i int) float32 { return 65520 * float32(i/40%2) }, "*.v_proj=8", gguf.F32, "row 1 holds 65520, beyond F16's range of 65504: stored as F32"},
	} {
		list := smallModel()
		list[9].shape, list[10].shape = []int64{40, 64}, []int64{40, 64}
		for _, i := range []int{5, 7} { // FP8
			list[i] = testTensor{name: list[i].name, dtype: packing.BF16, shape: list[i].shape}
		}
		list = append(list[:6], list[7:]...) // without its scales
		list[10] = testTensor{name: name, dtype: c.dtype, shape: []int64{64, 40}, value: c.value}
		dir := writeCheckpoint(t, config, list...)
		rule, err := quantizer.ParseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Recipe: quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}, Rules: []quantizer.Rule{rule}}}
		gqfPlan, err := quantizing(openCheckpoint(t, dir), []byte(config), o)
		if err != nil {
			t.Fatal(err)
		}
		o.GGUF = &togguf.Options{}
		direct, err := quantizing(openCheckpoint(t, dir), []byte(config), o)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "m")
		if _, err := gqfPlan.Write(context.Background(), path+".gqf"); err != nil {
			t.Fatal(err)
		}
		packed, err := gqf.Open(path+".gqf", gqf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer packed.Close()
		export, err := NewExport(packed, path+".gqf", ExportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var files [][]byte
		for i, p := range []*write.Job{direct, export} {
			l := line(t, p, name)
			if l.Type != c.want.String() || l.Bytes != 64*c.want.Size(40) || (i == 0 || c.want != gguf.F32) && !strings.Contains(l.Reason, c.reason) && c.rule != "*.down_proj=skip" {
				t.Errorf("%s, %s, plan %d: %+v, want %s because %s", c.dtype, c.rule, i, l, c.want, c.reason)
			}
			if warned := strings.Contains(strings.Join(p.Warnings, "\n"), name); warned != (c.rule != "*.down_proj=skip") {
				t.Errorf("%s, %s, plan %d: warnings %q", c.dtype, c.rule, i, p.Warnings)
			}
			out := fmt.Sprint(path, i, ".gguf")
			r, err := p.Write(context.Background(), out)
			if err != nil || r.ReadBack == nil {
				t.Fatal(r, err)
			}
			data, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, data)
		}
		if !bytes.Equal(files[0], files[1]) {
			t.Errorf("%s, %s: the export of the .gqf file has other bytes", c.dtype, c.rule)
		}
		f, err := gguf.Parse(files[0])
		if err != nil {
			t.Fatal(err)
		}
		g := f.Tensor("blk.0.ffn_down.weight")
		got := make([]float32, g.Elements())
		if err := g.Type.Decode(got, f.Data(g)); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			want := c.value(i)
			switch {
			case c.want == gguf.F16:
				want = floats.RoundF16(want)
			case c.want == gguf.BF16:
				want = floats.BF16ToF32(floats.BF16FromF32(want))
			}
			if v != want {
				t.Fatalf("%s, %s: weight %d is %g, want %g", c.dtype, c.rule, i, v, want)
			}
		}
	}
}
