package conversion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
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
func planSmall(t *testing.T, tensors []testTensor, threads int, r quantizer.Recipe, rules ...string) (*Plan, *safetensors.Checkpoint, error) {
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
	p, err := NewPlan(ck, []byte(smallLlama), Options{Recipe: r, Threads: threads, GGUF: &GGUFOptions{}})
	return p, ck, err
}

// fillGGUF runs a plan in memory.
func fillGGUF(t *testing.T, p *Plan) []byte {
	t.Helper()
	j, err := p.newJob(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := make(memory, p.OutputBytes)
	j.out = []io.WriterAt{m}
	if err := j.fill(context.Background()); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestGGUFUnquantized: unquantized weights keep what the type can hold, with FP8 scales multiplied in, and
// rows of q and k are where llama.cpp has them.
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
		if l := line(t, p, c.source); l.Action != ActionUnquantized || l.Type != c.kind.String() || l.Bytes != g.Size {
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
	if l := line(t, p, "model.layers.0.self_attn.k_proj.weight_scale_inv"); l.Action != ActionAbsorb {
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
	if _, err := NewPlan(ck, []byte(smallLlama), Options{GGUF: &GGUFOptions{}}); !errors.As(err, &request) {
		t.Errorf("another target: %v", err)
	}
	if _, err := NewPlan(ck, nil, Options{Recipe: quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}}, GGUF: &GGUFOptions{}}); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("no config.json: %v", err)
	}
}
