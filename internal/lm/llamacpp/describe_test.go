package llamacpp

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/jsonscan"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

var update = flag.Bool("update", false, "write the golden files")

// model reads a small checkpoint of package model's tests, with edited keys of its config.json and
// edited shapes of tensors, by the end of their names.
func model(t testing.TB, name string, keys map[string]any, shapes map[string][]int64) (config []byte, sources []Source) {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "internal", "lm", "forward", "testdata", "torch", name)
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, keys)
	if config, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	c, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, tensor := range c.Tensors() {
		s := Source{Name: tensor.Name, Shape: tensor.Shape}
		for end, shape := range shapes {
			if strings.HasSuffix(s.Name, end) {
				s.Shape = shape
			}
		}
		sources = append(sources, s)
	}
	return config, sources
}

// text writes a model in one line per key and tensor.
func (m *Model) text() string {
	var b strings.Builder
	for _, p := range m.Metadata {
		fmt.Fprintf(&b, "%s %T %v\n", p.Key, p.Value, p.Value)
	}
	for _, t := range m.Tensors {
		fmt.Fprintf(&b, "%s %v", t.Name, t.Shape)
		if t.F32 {
			b.WriteString(" F32")
		}
		for _, p := range t.Parts {
			fmt.Fprintf(&b, " %s[%d][%d:%d]", p.Source, p.Slice, p.From, p.From+p.Rows)
			if p.Head != 0 {
				fmt.Fprintf(&b, " heads of %d", p.Head)
			}
			if p.Add != 0 {
				fmt.Fprintf(&b, " + %v", p.Add)
			}
		}
		if t.Values != nil {
			fmt.Fprintf(&b, " = %v", t.Values)
		}
		b.WriteByte('\n')
	}
	for _, n := range m.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

func TestDescribe(t *testing.T) {
	type keys map[string]any
	for _, c := range []struct {
		name   string
		keys   keys
		shapes map[string][]int64
	}{
		{name: "llama-bias-tied"}, {name: "llama2-linear"}, {name: "llama3"}, {name: "mistral"}, {name: "mixtral"},
		{name: "qwen2"}, {name: "qwen2-window"}, {name: "qwen3"},
		// Heads of hidden_size / heads, as llama.cpp expects.
		{name: "qwen2-yarn", keys: keys{"num_attention_heads": 2}, shapes: map[string][]int64{
			"q_proj.weight": {32, 32}, "q_proj.bias": {32}, "o_proj.weight": {32, 32},
		}},
		{name: "gemma2", keys: keys{"query_pre_attn_scalar": 16}}, // the size of a head
		{name: "gemma3", keys: keys{"query_pre_attn_scalar": 16}},
		{name: "phi3"}, {name: "phi4-mini"}, {name: "smollm3"},
	} {
		config, sources := model(t, c.name, c.keys, c.shapes)
		m, err := Describe(config, sources)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		golden := filepath.Join("testdata", c.name+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(m.text()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != m.text() {
			t.Errorf("%s differs from %s:\n%s", c.name, golden, m.text())
		}
	}
}

// TestDescribeErrors lists what llama.cpp cannot express, and damaged models.
func TestDescribeErrors(t *testing.T) {
	type keys map[string]any
	for _, c := range []struct {
		name   string
		keys   keys
		shapes map[string][]int64
		want   string
	}{
		{name: "qwen2-yarn", want: "4 heads of 16 with hidden_size 32: it expects hidden_size / heads"},
		{name: "qwen3-moe", want: "layer 1 is dense (mlp_only_layers"},
		{name: "qwen3-moe-unnormalized", want: "norm_topk_prob is false"},
		{name: "qwen3-moe", keys: keys{"num_experts": 2000}, want: "2000 experts: its limit is 1024"},
		{name: "gemma2", want: "multiplies queries and keys by 0.25 in a model of this shape, config.json asks for 0.204124 (query_pre_attn_scalar)"},
		{name: "gemma2", keys: keys{"query_pre_attn_scalar": 16, "attn_logit_softcapping": nil}, want: "attn_logit_softcapping null"},
		{name: "gemma2", keys: keys{"query_pre_attn_scalar": 16, "final_logit_softcapping": nil}, want: "final_logit_softcapping null"},
		{name: "gemma3", keys: keys{"query_pre_attn_scalar": 16, "layer_types": []string{"full_attention", "full_attention", "sliding_attention", "full_attention"}}, want: "layer_types has another order"},
		{name: "gemma3", keys: keys{"query_pre_attn_scalar": 16, "rope_scaling": keys{"rope_type": "yarn", "factor": 2}}, want: "would use yarn in layers with a sliding window too"},
		{name: "qwen3", keys: keys{"attention_bias": true}, want: "a bias of attention's output (attention_bias)"},
		{name: "qwen3", keys: keys{"rope_scaling": keys{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}}, want: `rope factors of rope_type "llama3"`},
		{name: "qwen3", keys: keys{"rope_scaling": keys{"rope_type": "yarn", "factor": 2, "beta_fast": 16}}, want: "beta_fast 32, beta_slow 1 and truncate true, config.json asks for 16, 1 and true"},
		{name: "smollm3", keys: keys{"no_rope_layers": []int{1, 1, 0, 1, 1}}, want: "no rope in every 4th layer, but layer 2 of no_rope_layers differs"},
		{name: "smollm3", keys: keys{"mlp_bias": true}, want: "biases of the feed-forward network (mlp_bias)"},
		{name: "llama3", keys: keys{"num_hidden_layers": 600}, want: "600 layers, more than its limit of 512"},
		{name: "llama3", keys: keys{"model_type": "gpt_neox"}, want: `model_type "gpt_neox" is not supported`},
		{name: "llama3", keys: keys{"num_hidden_layers": 1}, want: `tensor "model.layers.1.`},
		{name: "llama3", keys: keys{"num_hidden_layers": 3}, want: `tensor "model.layers.2.input_layernorm.weight" is missing`},
		{name: "llama3", shapes: map[string][]int64{"layers.1.mlp.up_proj.weight": {32, 48}}, want: `tensor "model.layers.1.mlp.up_proj.weight": shape [32 48], but config.json makes it [48 32]`},
	} {
		config, sources := model(t, c.name, c.keys, c.shapes)
		if _, err := Describe(config, sources); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v, want %q", c.name, c.keys, err, c.want)
		}
	}
	config, sources := model(t, "gemma2", keys{"query_pre_attn_scalar": 16}, nil)
	sources = append(sources, Source{Name: "lm_head.weight", Shape: []int64{67, 32}})
	if _, err := Describe(config, sources); err == nil || !strings.Contains(err.Error(), "has no lm_head of its own") {
		t.Errorf("an lm_head: %v", err)
	}
	sources[len(sources)-1].Same = "model.embed_tokens.weight"
	if m, err := Describe(config, sources); err != nil || m.Tensors[len(m.Tensors)-1].Name != "output_norm.weight" {
		t.Errorf("a tied lm_head that is stored: %v", err)
	}
}

// TestDescribeRefused lists what llama.cpp computes in another way than models of Transformers.
func TestDescribeRefused(t *testing.T) {
	type keys map[string]any
	sparse := []float64{0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95}
	yarn := keys{"type": "yarn", "factor": 8, "original_max_position_embeddings": 64}
	for _, c := range []struct {
		name string
		keys keys
		want string
	}{
		{"kimi-linear", keys{"num_expert_group": 2, "topk_group": 1}, "among the experts of the best of 2 groups (n_group)"},
		{"deepseek-v2", keys{"topk_method": "greedy", "rope_scaling": yarn}, "without mscale_all_dim"},
		{"deepseek-v2-lite", nil, "queries without a latent (q_lora_rank null) in a model of 3 layers"},
		{"deepseek-v3", keys{"rope_interleave": false}, "(rope_interleave false)"},
		{"deepseek-v3", keys{"rope_scaling": yarn}, "without mscale_all_dim"},
		{"minicpm3", nil, "factors other than scale_emb 12, scale_depth 1.4 and dim_model_base 256"},
		{"minicpm3", keys{"scale_emb": 12, "dim_model_base": 256, "q_lora_rank": nil}, "q_lora_rank null"},
		{"minicpm3", keys{"scale_emb": 12, "dim_model_base": 256, "rope_scaling": yarn}, "rope_type yarn"},
		{"gpt-oss", nil, "swiglu_limit 7 (1.5)"},
		{"gpt-oss", keys{"swiglu_limit": 7, "attention_bias": false}, "attention_bias false"},
		{"phimoe", keys{"lm_head_bias": false}, "(attention_bias, lm_head_bias)"},
		{"llama4", nil, "(attn_temperature_tuning, attn_scale, floor_scale)"},
		{"llama4", keys{"attn_scale": 0.1, "floor_scale": 8192}, "chunks of other than 8192 tokens (attention_chunk_size)"},
		{"llama4", keys{"attn_scale": 0.1, "floor_scale": 8192, "use_qk_norm": false}, "use_qk_norm false with 4 experts"},
		{"llama4", keys{"attn_scale": 0.1, "floor_scale": 8192, "attention_chunk_size": 8192, "no_rope_layers": []int{}, "moe_layers": []int{1, 2}}, "layer 2 has another network (moe_layers)"},
		{"kimi-linear", keys{"moe_renormalize": false}, "moe_renormalize false"},
		{"granitemoehybrid", keys{"mamba_expand": 1, "mamba_n_heads": 4}, "state spaces with other than 2 hidden_size inputs (mamba_expand)"},
		{"granitemoehybrid", keys{"time_step_limit": []float64{0.1, 1}}, "limits of time steps (time_step_limit, time_step_min)"},
		{"falcon-h1", keys{"time_step_limit": []float64{0.1, 1}}, "limits of time steps (time_step_limit, time_step_min)"},
		{"nemotron-h-latent", keys{"time_step_min": 0.1}, "limits of time steps (time_step_limit, time_step_min)"},
		{"granitemoehybrid", keys{"mamba_proj_bias": true}, "biases of the projections of state spaces (mamba_proj_bias"},
		{"granitemoehybrid", keys{"mamba_conv_bias": false}, "convolutions without a bias (mamba_conv_bias"},
		{"falcon-h1-norm", nil, "norms before the gate (mamba_norm_before_gate)"},
		{"nemotron-h", nil, "nemotron_h expects experts in every layer, but layer 1 is dense"},
		{"nemotron-h", keys{"use_bias": true}, "biases of the projections of state spaces (mamba_proj_bias, use_bias)"},
		{"gemma3n", keys{"intermediate_size": 96, "activation_sparsity_pattern": sparse}, "of one intermediate_size: layer 4 differs"},
		{"gemma3n", keys{"num_kv_shared_layers": 0, "intermediate_size": 96}, "layers but 20 with keys of their own, and 10 with an activation_sparsity_pattern of 0.95, all of one intermediate_size: layer 1 differs"},
		{"gemma3n", keys{"num_kv_shared_layers": 0, "activation_sparsity_pattern": sparse}, "of one intermediate_size: layer 0 differs"},
		{"gemma3n", keys{"num_kv_shared_layers": 0, "activation_sparsity_pattern": sparse, "intermediate_size": 96}, "other values than 256 for hidden_size_per_layer_input, 4 for altup_num_inputs, 64 for laurel_rank"},
		{"gemma3n", keys{"num_kv_shared_layers": 0, "activation_sparsity_pattern": sparse, "intermediate_size": 96, "hidden_size_per_layer_input": 256, "laurel_rank": 64, "altup_correct_scale": false}, "and true for altup_correct_scale"},
		{"gemma3n", keys{"num_kv_shared_layers": 0, "activation_sparsity_pattern": sparse, "intermediate_size": 96, "hidden_size_per_layer_input": 256, "laurel_rank": 64, "final_logit_softcapping": 20}, "30 for final_logit_softcapping"},
		{"gemma3n", keys{"num_kv_shared_layers": 0, "activation_sparsity_pattern": sparse, "intermediate_size": 96, "hidden_size_per_layer_input": 256, "laurel_rank": 64, "vocab_size": 100}, "more rows of inputs of single layers than tokens (vocab_size_per_layer_input)"},
		{"cohere", keys{"num_hidden_layers": 64}, "64 layers and more without norms of queries and keys (use_qk_norm false)"},
		{"cohere", keys{"attention_bias": true}, "biases of q, k and v"},
		{"arcee", keys{"mlp_bias": true}, "biases of the feed-forward network (mlp_bias)"},
		{"nemotron", keys{"tie_word_embeddings": true}, "an lm_head that is the embedding (tie_word_embeddings)"},
		{"stablelm", keys{"tie_word_embeddings": true}, "an lm_head that is the embedding (tie_word_embeddings)"},
		{"dots1", keys{"tie_word_embeddings": true}, "an lm_head that is the embedding (tie_word_embeddings)"},
		{"dots1", keys{"num_key_value_heads": 2}, "2 heads of keys and values for 4 of queries (num_key_value_heads)"},
		{"glm", keys{"head_dim": 32}, "4 heads of 32 with hidden_size 64"},
		{"gemma4", nil, "keys and values of layer 1 in layer 3, only of layer 2 (num_kv_shared_layers)"},
	} {
		raw, err := os.ReadFile(filepath.Join(testshared.Root(t), "internal", "lm", "forward", "testdata", "transformers", c.name, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		config := keys{}
		if err := json.Unmarshal(jsonscan.Finite(raw), &config); err != nil {
			t.Fatal(err)
		}
		maps.Copy(config, c.keys)
		if raw, err = json.Marshal(config); err != nil {
			t.Fatal(err)
		}
		if _, err := Describe(raw, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v, want %q", c.name, c.keys, err, c.want)
		}
	}
}

// TestFusedExperts describes experts in the tensors that transformers 5 saves.
func TestFusedExperts(t *testing.T) {
	config, sources := model(t, "mixtral", nil, nil)
	sources = slices.DeleteFunc(sources, func(s Source) bool { return strings.Contains(s.Name, "block_sparse_moe") })
	for i := range 2 {
		at := fmt.Sprintf("model.layers.%d.mlp.", i)
		sources = append(sources, Source{Name: at + "gate.weight", Shape: []int64{4, 32}},
			Source{Name: at + "experts.gate_up_proj", Shape: []int64{4, 96, 32}}, Source{Name: at + "experts.down_proj", Shape: []int64{4, 32, 48}})
	}
	m, err := Describe(config, sources)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"blk.1.ffn_gate_inp.weight [32 4] F32 model.layers.1.mlp.gate.weight[0][0:4]\n",
		"blk.1.ffn_gate_exps.weight [32 48 4] model.layers.1.mlp.experts.gate_up_proj[0][0:48] model.layers.1.mlp.experts.gate_up_proj[1][0:48]",
		"blk.1.ffn_up_exps.weight [32 48 4] model.layers.1.mlp.experts.gate_up_proj[0][48:96] model.layers.1.mlp.experts.gate_up_proj[1][48:96]",
		"blk.1.ffn_down_exps.weight [48 32 4] model.layers.1.mlp.experts.down_proj[0][0:32] model.layers.1.mlp.experts.down_proj[1][0:32]",
	} {
		if !strings.Contains(m.text(), want) {
			t.Errorf("no %q in\n%s", want, m.text())
		}
	}
}

// TestMultimodal leaves out the tensors for images.
func TestMultimodal(t *testing.T) {
	config, sources := model(t, "gemma3", map[string]any{"query_pre_attn_scalar": 16}, nil)
	config = fmt.Appendf(nil, `{"model_type":"gemma3","architectures":["Gemma3ForConditionalGeneration"],"vision_config":{},"text_config":%s}`, config)
	for i := range sources {
		sources[i].Name = "language_model." + sources[i].Name
	}
	sources = append(sources, Source{Name: "vision_tower.vision_model.head.weight", Shape: []int64{1}})
	m, err := Describe(config, sources)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Notes) != 1 || !strings.Contains(m.Notes[0], "the tensors for images (1) are left out") || m.Tensors[0].Parts[0].Source != "language_model.model.embed_tokens.weight" {
		t.Errorf("%q, %v", m.Notes, m.Tensors[0])
	}
}

// TestPartRow holds the order of rows to the reshaping that llama.cpp's converter states: heads of
// two halves become heads of pairs.
func TestPartRow(t *testing.T) {
	const heads, dim = 3, 8
	p := Part{Rows: heads * dim, Order: Order{dim, 2, 1}}
	var want []int
	for h := range heads {
		for j := range dim / 2 {
			for half := range 2 { // swapaxes(1, 2) of [heads][2][dim/2]
				want = append(want, h*dim+half*dim/2+j)
			}
		}
	}
	for i := range p.Rows {
		if back, ok := p.Find(p.Row(i)); p.Row(i) != want[i] || back != i || !ok {
			t.Errorf("row %d is %d, want %d; back %d, %v", i, p.Row(i), want[i], back, ok)
		}
	}
	// Six heads of values of two rows, of which three share a head of keys, follow two other rows.
	p, want = Part{From: 2, Rows: 12, Order: Order{12, 2, 2}}, nil
	for g := range 3 {
		for k := range 2 {
			want = append(want, 2+2*(3*k+g), 3+2*(3*k+g))
		}
	}
	for i := range p.Rows {
		if back, ok := p.Find(p.Row(i)); p.Row(i) != want[i] || back != i || !ok {
			t.Errorf("row %d is %d, want %d; back %d, %v", i, p.Row(i), want[i], back, ok)
		}
	}
	p = Part{From: 1, Rows: 4, Step: 2}
	for row, want := range []int{-1, 0, -1, 1, -1, 2, -1, 3, -1, -1} {
		if i, ok := p.Find(row); ok != (want >= 0) || ok && (i != want || p.Row(i) != row) {
			t.Errorf("row %d of the source is row %d, %v, want %d", row, i, ok, want)
		}
	}
}

// TestDocumented holds the model types in the table of docs/GGUF.md to the families.
func TestDocumented(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(testshared.Root(t), "docs", "GGUF.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(raw), "| model_type in config.json | refused |\n|---|---|\n")
	if table, _, _ = strings.Cut(table, "\n\n"); !ok || table == "" {
		t.Fatal("docs/GGUF.md has no table of model types")
	}
	for row := range strings.SplitSeq(table, "\n") {
		for name := range strings.SplitSeq(strings.Split(row, " | ")[0][2:], ", ") {
			if _, ok := familyOf(arch.TextType(name)); !ok {
				t.Errorf("row %q: gq writes no .gguf files of model_type %q", row, name)
			}
		}
	}
}
