package testmodels

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/jsonscan"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// Sizes of the models. K-quants of llama.cpp need rows of a multiple of 256 values.
const (
	Hidden       = 256
	Intermediate = 512 // 256 in an expert of Qwen3
	Vocab        = 512
	heads        = 4
	kvHeads      = 2
)

// A Variant is an architecture with a choice of its options.
type Variant struct {
	Name      string // of the directory in internal/lm/forward/testdata/torch or transformers
	Config    map[string]any
	Tokenizer Tokenizer
}

// byteLevel are the tokenizers of variants of families with a byte-level tokenizer; the others are
// SPM-like.
var byteLevel = map[string]Tokenizer{
	"llama3": Llama3, "llama-bias-tied": Llama3, "smollm3": Llama3,
	"qwen2": Qwen, "qwen2-window": Qwen, "qwen2-yarn": Qwen, "qwen3": Qwen, "qwen3-moe": Qwen, "qwen3-moe-unnormalized": Qwen,
	"gemma2": Gemma, "gemma3": Gemma,
}

// Variants returns all variants, sorted by judge and name.
func Variants(t testing.TB) []Variant {
	t.Helper()
	var files []string
	for _, judge := range []string{"torch", "transformers"} {
		list, err := filepath.Glob(filepath.Join(testshared.Root(t), "internal", "lm", "forward", "testdata", judge, "*", "config.json"))
		if err != nil || len(list) == 0 {
			t.Fatalf("no configurations of %s: %v", judge, err)
		}
		files = append(files, list...)
	}
	var all []Variant
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		v := Variant{Name: filepath.Base(filepath.Dir(file)), Tokenizer: Llama}
		if err := json.Unmarshal(jsonscan.Finite(raw), &v.Config); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if family, ok := byteLevel[v.Name]; ok {
			v.Tokenizer = family
		}
		v.widen()
		all = append(all, v)
	}
	return all
}

// All fails the test for each architecture of [arch.Architectures] that is missing from seen, a set
// of model types of language models. docs/RUN.md promises all of them.
func All(t testing.TB, seen map[string]bool) {
	t.Helper()
	for _, name := range arch.Architectures() {
		if !seen[arch.TextType(name)] {
			t.Errorf("architecture %s is not tested here", name)
		}
	}
}

// Type returns the model_type of the language model.
func (v Variant) Type() string {
	name, _ := v.Config["model_type"].(string)
	return arch.TextType(name)
}

// ForLlamaCpp returns the variants that llama.cpp can express: its mixtures of Qwen3 have experts
// in every layer, and normalize their weights. Each architecture with a name in llama.cpp has one.
func ForLlamaCpp(t testing.TB) (list []Variant) {
	t.Helper()
	seen := map[string]bool{}
	defer func() { All(t, seen) }()
	for _, v := range Variants(t) {
		switch v.Name {
		case "qwen3-moe":
			v = Mixture(t)
		case "qwen2-moe":
			v = v.With("all", "mlp_only_layers", []int{})
		case "exaone4":
			v = v.With("full", "sliding_window", nil).With("layers", "layer_types", nil)
		case "olmoe", "dots1":
			v = v.With("ungrouped", "num_key_value_heads", heads)
		case "qwen2-5-vl":
			v = v.With("epsilon", "rms_norm_eps", 1e-12) // 0 in llama.cpp, see docs/GGUF.md
		case "qwen3-next":
			v = v.With("all", "mlp_only_layers", []int{})
		case "gpt-oss":
			v = v.With("limit", "swiglu_limit", 7)
		case "phimoe":
			v = v.With("jitter", "router_jitter_noise", 0.01) // has no key
		case "llama4":
			v = v.With("chunk", "attention_chunk_size", 8192).With("scale", "attn_scale", 0.1).With("floor", "floor_scale", 8192).With("ropes", "no_rope_layers", []int{1, 1, 1, 0})
			v.Config["rope_scaling"].(map[string]any)["original_max_position_embeddings"] = 8192
		case "minicpm3":
			v = v.With("embedding", "scale_emb", 12).With("head", "dim_model_base", 256).With("untied", "tie_word_embeddings", false)
		case "gemma3n": // numbers in llama.cpp's code
			sparsity, types := make([]float64, 25), make([]string, 25)
			for i := range types {
				if types[i] = "sliding_attention"; i%5 == 4 {
					types[i] = "full_attention"
				}
				if i < 10 {
					sparsity[i] = 0.95
				}
			}
			v = v.With("e2b", "num_hidden_layers", 25)
			maps.Copy(v.Config, map[string]any{
				"num_kv_shared_layers": 5, "layer_types": types, "activation_sparsity_pattern": sparsity, "intermediate_size": Intermediate,
				"hidden_size_per_layer_input": 256, "laurel_rank": 64, "vocab_size_per_layer_input": Vocab - 8,
			})
		case "gemma4":
			text := maps.Clone(v.Config["text_config"].(map[string]any))
			const s, f = "sliding_attention", "full_attention"
			text["num_kv_shared_layers"], text["layer_types"] = 2, []string{s, s, s, f, s, f}
			v = v.With("shared", "text_config", text)
		case "falcon-h1-norm":
			v = v.With("late", "mamba_norm_before_gate", false)
		case "nemotron-h": // dense networks, or mixtures
			list = append(list, v.With("dense", "hybrid_override_pattern", "M-*-M"))
			v = v.With("experts", "hybrid_override_pattern", "ME*EM")
		case "qwen3-moe-unnormalized", "ernie4-5-bias", "deepseek-v2-lite":
			continue
		}
		seen[v.Type()] = true
		if arch.FactsOf(v.Type()).LlamaCpp != nil {
			list = append(list, v)
		}
	}
	return list
}

// Mixture returns a mixture of Qwen3 with experts in every layer.
func Mixture(t testing.TB) Variant {
	t.Helper()
	return Find(t, "qwen3-moe").With("all", "mlp_only_layers", []int{})
}

// Find returns the variant of that name.
func Find(t testing.TB, name string) Variant {
	t.Helper()
	for _, v := range Variants(t) {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("no variant %q", name)
	return Variant{}
}

// With returns the variant with another value for a key of config.json. The name tells.
func (v Variant) With(name, key string, value any) Variant {
	v.Name += "-" + name
	v.Config = maps.Clone(v.Config)
	v.Config[key] = value
	return v
}

// Narrow returns the variant with a quarter of the width. Use it where no K-quants are involved:
// matrices take a sixteenth of the time. Values of With that are not sizes of the variant remain.
func (v Variant) Narrow() Variant {
	v.Config = clone(v.Config).(map[string]any)
	c, wide := v.sizes(Hidden)
	_, narrow := v.sizes(Hidden / 4)
	for key, size := range narrow {
		switch value := c[key].(type) {
		case int:
			if value == wide[key] {
				c[key] = size
			}
		case []any:
			for i := range value {
				value[i] = Intermediate / 4
			}
		}
	}
	if size, ok := c["v_head_dim"].(float64); ok && int(size) > Hidden/4/heads { // not widened
		c["v_head_dim"] = Hidden / 4 / heads * 3 / 4
	}
	ropes(c, Hidden/4/heads)
	return v
}

// clone copies a JSON value.
func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		m := maps.Clone(value)
		for key := range m {
			m[key] = clone(m[key])
		}
		return m
	case []any:
		list := slices.Clone(value)
		for i := range list {
			list[i] = clone(list[i])
		}
		return list
	}
	return value
}

// sizes returns the language model's part of the configuration, and its sizes at a width.
func (v Variant) sizes(hidden int) (config, sizes map[string]any) {
	intermediate, headDim := 2*hidden, hidden/heads
	if config = v.Config; config["text_config"] != nil {
		config = config["text_config"].(map[string]any)
	}
	return config, map[string]any{
		"hidden_size": hidden, "intermediate_size": intermediate, "intermediate_size_mlp": intermediate * 3 / 2, "moe_intermediate_size": intermediate / 2, "moe_latent_size": hidden / 2, "vocab_size": Vocab,
		"num_attention_heads": heads, "num_key_value_heads": kvHeads, "head_dim": headDim, "query_pre_attn_scalar": headDim,
		"shared_expert_intermediate_size": intermediate / 2, "rotary_dim": headDim / 2, "block_ff_dim": intermediate * 3 / 2,
		"qk_nope_head_dim": headDim * 3 / 4, "qk_rope_head_dim": headDim / 4, "kv_lora_rank": hidden / 2, "q_lora_rank": hidden / 2, "dim_model_base": hidden * 3 / 4,
		"global_head_dim": 2 * headDim, "num_global_key_value_heads": kvHeads / 2,
		"hidden_size_per_layer_input": headDim / 2, "vocab_size_per_layer_input": Vocab, "laurel_rank": headDim / 2,
		"linear_key_head_dim": headDim, "linear_value_head_dim": headDim,
		"mamba_d_head": headDim, "mamba_d_ssm": 6 * headDim, // Falcon-H1 has 6 heads
	}
}

// widen replaces the sizes in the configuration.
func (v Variant) widen() {
	c, sizes := v.sizes(Hidden)
	for key, size := range sizes {
		switch list := c[key].(type) {
		case nil, string:
		case float64:
			if list != 0 { // 0 switches a part off
				c[key] = size
			}
		case []any: // by layer, in mixtures with experts as wide as dense layers
			for i := range list {
				list[i] = Intermediate
			}
		default:
			c[key] = size
		}
	}
	if _, latents := c["kv_lora_rank"]; latents {
		c["num_key_value_heads"] = heads
	}
	c["bos_token_id"], c["eos_token_id"] = v.Tokenizer.bos(), v.Tokenizer.eos()
	delete(c, "pad_token_id")
	ropes(c, Hidden/heads)
}

// ropes makes the sections and factors of a rotary embedding fit the size of heads.
func ropes(c map[string]any, headDim int) {
	if s, ok := c["rope_scaling"].(map[string]any); ok {
		if _, ok := s["mrope_section"]; ok { // in the proportions of Qwen3-VL, 24, 20 and 20
			t := headDim * 3 / 16
			h := (headDim/2 - t + 1) / 2
			s["mrope_section"] = []int{t, h, headDim/2 - t - h}
		}
		part, ok := c["partial_rotary_factor"].(float64)
		if !ok {
			part = 1
		}
		for _, key := range []string{"long_factor", "short_factor"} {
			if f, ok := s[key].([]any); ok {
				s[key] = stretch(f, int(float64(headDim)*part)/2)
			}
		}
	}
}

// stretch interpolates a list to n entries.
func stretch(list []any, n int) []any {
	out := make([]any, n)
	for i := range out {
		at := float64(i) * float64(len(list)-1) / float64(n-1)
		k := min(int(at), len(list)-2)
		a, b := list[k].(float64), list[k+1].(float64)
		out[i] = a + (b-a)*(at-float64(k))
	}
	return out
}
