package arch

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// edited returns the config.json of a torch case with changed keys; a nil value removes a key.
func edited(t testing.TB, name string, changes map[string]any) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "internal", "lm", "forward", "testdata", "torch", name, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	for k, v := range changes {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type changes = map[string]any

// gptOss is a generated model, not a torch case.
const gptOss = "../transformers/gpt-oss"

var null = json.RawMessage("null")

func TestParseForwardErrors(t *testing.T) {
	for _, c := range []struct {
		model   string
		changes changes
		want    string
	}{
		{"llama3", changes{"mystery": 1}, "mystery is a key that this forward pass does not know"},
		{"llama3", changes{"qk_layernorm": true, "zeta": 1}, "qk_layernorm is a key that this forward pass does not know (and zeta)"},
		{"llama3", changes{"model_type": "bloom"}, `model_type "bloom" is not supported`},
		{"llama3", changes{"model_type": nil}, "names no model_type"},
		{"llama3", changes{"architectures": []string{"LlamaForSequenceClassification"}}, "LlamaForCausalLM only"},
		{"llama3", changes{"hidden_act": "relu2"}, "hidden_act is relu2: this forward pass knows only silu"},
		{"llama3", changes{"hidden_size": nil}, "hidden_size is missing"},
		{"llama3", changes{"hidden_size": "64"}, "hidden_size is not a number"},
		{"llama3", changes{"hidden_size": 0}, "hidden_size is 0"},
		{"llama3", changes{"hidden_size": -8}, "hidden_size is -8"},
		{"llama3", changes{"hidden_size": 1e300}, "hidden_size is"},
		{"llama3", changes{"vocab_size": nil}, "vocab_size is missing"},
		{"llama3", changes{"num_hidden_layers": 5000}, "num_hidden_layers is 5000"},
		{"llama3", changes{"num_key_value_heads": 3}, "num_key_value_heads is 3, which does not divide"},
		{"llama3", changes{"rms_norm_eps": 0}, "rms_norm_eps is 0"},
		{"llama3", changes{"attention_bias": 1}, "attention_bias is neither true nor false"},
		{"llama3", changes{"is_encoder_decoder": true}, "is_encoder_decoder is true"},
		{"llama3", changes{"rope_scaling": changes{"rope_type": "dynamic", "factor": 2}}, `rope_scaling.rope_type is "dynamic"`},
		{"llama3", changes{"rope_scaling": changes{"factor": 2}}, "rope_scaling.rope_type is missing"},
		{"llama3", changes{"rope_scaling": changes{"rope_type": "linear", "type": "yarn", "factor": 2}}, "rope_scaling.type is"},
		{"llama3", changes{"rope_scaling": changes{"rope_type": "linear"}}, "rope_scaling.factor is missing"},
		{"llama3", changes{"rope_scaling": changes{"rope_type": "linear", "factor": 2, "beta_fast": 32}}, "rope_scaling.beta_fast is a key that this forward pass does not know"},
		{"llama3", changes{"rope_parameters": changes{"rope_type": "default"}}, "rope_scaling exists beside rope_parameters"},
		{"llama3", changes{"quantization_config": changes{"quant_method": "gptq", "bits": 4}}, `quant_method is "gptq"`},
		{gptOss, changes{"quantization_config": changes{"quant_method": "hqq"}}, `quant_method is "hqq": this forward pass reads only fp8 and mxfp4`},
		{gptOss, changes{"rope_scaling": nil}, "rope_scaling is missing"},
		{gptOss, changes{"experts_per_token": 2}, "experts_per_token is 2"},
		{"qwen2", changes{"use_mrope": true}, "use_mrope is true"},
		{"qwen2", changes{"layer_types": []string{"full_attention"}}, "layer_types has 1 entries"},
		{"qwen3", changes{"use_sliding_window": false, "layer_types": []string{"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention"}}, "layer_types has"},
		{"qwen3-moe", changes{"use_sliding_window": true}, "use_sliding_window is true"},
		{"qwen3-moe", changes{"num_experts_per_tok": 500}, "num_experts_per_tok is 500 of"},
		{"gemma3", changes{"attn_logit_softcapping": 50}, "attn_logit_softcapping is 50: Gemma 3 has none"},
		{"gemma3", changes{"use_bidirectional_attention": true}, "use_bidirectional_attention is true"},
		{"phi4-mini", changes{"partial_rotary_factor": 2.0}, "partial_rotary_factor is 2"},
		{"phi4-mini", changes{"full_attn_mod": 2}, "full_attn_mod is 2"},
		{"llama3", changes{"rope_scaling": changes{"rope_type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_position_embeddings": 64}}, "high_freq_factor is 1: at least"},
		{"../transformers/cohere", changes{"use_qk_norm": true}, "use_qk_norm is true: this forward pass knows only false"},
		{"../transformers/stablelm", changes{"qk_layernorm": true}, "qk_layernorm is true"},
		{"../transformers/stablelm", changes{"use_parallel_residual": true}, "use_parallel_residual is true"},
		{"../transformers/dots1", changes{"n_routed_experts": nil}, "n_routed_experts is missing"},
		{"../transformers/arcee", changes{"hidden_act": "silu"}, "hidden_act is silu: this forward pass knows only relu2"},
		{"../transformers/llama4", changes{"no_rope_layers": []int{1}}, "no_rope_layers has 1 entries for 4 layers"},
		{"../transformers/llama4", changes{"layer_types": []string{"sliding_attention", "", "", ""}}, `layer_types has "sliding_attention"`},
		{"../transformers/phimoe", changes{"num_experts_per_tok": 3}, "num_experts_per_tok is 3: this forward pass knows only 2"},
		{"../transformers/phimoe", changes{"tie_word_embeddings": true}, "lm_head_bias is true, but the lm_head is the embedding"},
		{"../transformers/phimoe", changes{"rope_scaling": changes{"type": "longrope", "short_factor": []int{1, 1, 1, 1, 1, 1, 1, 1}, "long_factor": []int{1, 1, 1, 1, 1, 1, 1, 1},
			"short_mscale": 1, "long_mscale": 2}}, "rope_scaling.long_mscale is 2: this forward pass knows only 1"},
	} {
		_, err := ParseForward(edited(t, c.model, c.changes))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %v: error %v, want %q", c.model, c.changes, err, c.want)
			continue
		}
		var config *ConfigError
		var unsupported *UnsupportedError
		if !errors.As(err, &config) && !errors.As(err, &unsupported) {
			t.Errorf("%s with %v: a %T", c.model, c.changes, err)
		}
	}
}

// TestParseForwardDefaults omits keys as published files do, and says the same in other ways.
func TestParseForwardDefaults(t *testing.T) {
	parse := func(model string, c changes) *ForwardConfig {
		t.Helper()
		f, err := ParseForward(edited(t, model, c))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if c := parse("mistral", changes{"sliding_window": nil}); c.Layers[0].Window != 4096 {
		t.Errorf("Mistral without sliding_window: %d", c.Layers[0].Window)
	}
	if c := parse(gptOss, changes{"sliding_window": nil, "swiglu_limit": nil, "layer_types": nil}); c.Layers[0].Window != 128 || c.Layers[1].Window != 0 || c.GateLimit != 7 || c.GateSlope != 1.702 {
		t.Errorf("gpt-oss without keys: %+v", c)
	}
	if c := parse("mistral", changes{"sliding_window": null}); c.Layers[0].Window != 0 {
		t.Errorf("Mistral with sliding_window null: %d", c.Layers[0].Window)
	}
	if c := parse("gemma2", changes{"attn_logit_softcapping": nil, "final_logit_softcapping": null}); c.AttentionSoftcap != 50 || c.LogitSoftcap != 0 {
		t.Errorf("Gemma 2's caps: %v, %v", c.AttentionSoftcap, c.LogitSoftcap)
	}
	c := parse("llama3", changes{"rope_scaling": nil, "rope_theta": nil, "rope_parameters": changes{"rope_type": "linear", "rope_theta": 5e5, "factor": 4}})
	if r := c.Ropes[0]; r.Theta != 5e5 || r.Type != "linear" || r.Factor != 4 {
		t.Errorf("rope_parameters: %+v", r)
	}
	c = parse("gemma3", changes{"rope_scaling": nil, "rope_theta": nil, "rope_local_base_freq": nil, "rope_parameters": changes{
		"full_attention": changes{"rope_type": "linear", "rope_theta": 1e6, "factor": 8}, "sliding_attention": changes{"rope_type": "default", "rope_theta": 10000}}})
	want := parse("gemma3", nil)
	for i := range want.Ropes {
		if got, want := c.Ropes[i].Frequencies(1), want.Ropes[i].Frequencies(1); len(got) != len(want) || got[1] != want[1] {
			t.Errorf("rope %d: %v, want %v", i, got, want)
		}
	}
	if c := parse("../transformers/cohere", changes{"model_max_length": 131072}); c.MaxPositions != 131072 {
		t.Errorf("Command R's context: %d", c.MaxPositions)
	}
	c = parse("../transformers/llama4", changes{"no_rope_layers": []int{}, "attn_temperature_tuning": 4, "interleave_moe_layer_step": nil, "attention_chunk_size": nil})
	if l := c.Layers; l[0].Chunk != 8192 || l[0].Rope != 0 || l[3].Chunk != 0 || l[3].Rope != -1 || !l[0].Experts {
		t.Errorf("layers of Llama 4: %+v", l)
	}
	if a, b := c.QueryFactor(&c.Layers[3], 8), c.QueryFactor(&c.Layers[3], 9); a != 1 || math.Abs(b-1-0.3*math.Log(2)) > 1e-12 {
		t.Errorf("factors of queries before and behind floor_scale: %v, %v", a, b)
	}
	if c := parse("../transformers/llama4", changes{"attn_temperature_tuning": false, "use_qk_norm": false}); c.Temperature != 0 || c.QKNorm != NoQKNorm {
		t.Errorf("Llama 4 without temperatures and norms: %v, %v", c.Temperature, c.QKNorm)
	}
	text := json.RawMessage(edited(t, "../transformers/llama4", nil))
	whole, err := json.Marshal(changes{"model_type": "llama4", "architectures": []string{"Llama4ForConditionalGeneration"}, "text_config": text, "vision_config": changes{}, "image_token_index": 1})
	if err != nil {
		t.Fatal(err)
	}
	if c, err = ParseForward(whole); err != nil {
		t.Fatal(err)
	}
	if c.Architecture != "llama4_text" || c.Intermediate != 96 || c.Experts.Intermediate != 48 {
		t.Errorf("the text part of Llama 4: %+v", c)
	}
	// As Microsoft spells it.
	parse("../transformers/phimoe", changes{"architectures": []string{"PhiMoEForCausalLM"}})
	if c := parse("llama3", changes{"hidden_size": json.RawMessage("64.0")}); c.HiddenSize != 64 {
		t.Errorf("hidden size %d", c.HiddenSize)
	}
}

func TestArchitecturesAreSorted(t *testing.T) {
	names := Architectures()
	if len(names) != len(architectures)+len(multimodal) {
		t.Errorf("%q", names)
	}
	for name := range maps.Keys(multimodal) {
		if ClassName(multimodal[name].text) == "" {
			t.Errorf("%s wraps an unknown model", name)
		}
	}
}

func TestRopeFrequencies(t *testing.T) {
	// Llama 3.1's values: the shortest waves stay as they are, the longest become 8 times as long.
	r := RopeConfig{Type: "llama3", Theta: 500000, Dims: 128, Factor: 8, LowFactor: 1, HighFactor: 4, OriginalPositions: 8192, AttentionFactor: 1}
	f := r.Frequencies(1)
	for i, c := range []struct {
		at   int
		want float64
	}{{0, 1}, {1, 0.814618}, {63, 3.068926e-7}, {33, 0.0003127}} {
		if got := float64(f[c.at]); math.Abs(got-c.want) > 1e-3*c.want {
			t.Errorf("%d: frequency %d is %v, want %v", i, c.at, got, c.want)
		}
	}
}

func FuzzParseForward(f *testing.F) {
	files, _ := filepath.Glob("../../../internal/lm/forward/testdata/torch/*/config.json")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := ParseForward(raw)
		if (c == nil) == (err == nil) {
			t.Errorf("config %v with error %v", c, err)
		}
	})
}
