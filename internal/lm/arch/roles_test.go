package arch

import (
	"strconv"
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, test := range classifyTests {
		t.Run(test.arch, func(t *testing.T) {
			var cfg *Config
			if test.config != "" {
				var err error
				if cfg, err = ParseConfig([]byte(test.config)); err != nil {
					t.Fatal(err)
				}
			}
			for line := range strings.Lines(test.tensors) {
				f := strings.Fields(line)
				if len(f) == 0 {
					continue
				}
				c := Classify(cfg, f[0], parseShape(t, f[1]))
				if got, want := describe(c), strings.Join(f[2:], " "); got != want {
					t.Errorf("%s %s: %s (%s), want %s", f[0], f[1], got, c.Reason, want)
				}
				if c.Quantize != (c.Reason == "") {
					t.Errorf("%s: quantize %v with reason %q", f[0], c.Quantize, c.Reason)
				}
				if c.Slices() != max(1, c.Experts) {
					t.Errorf("%s: %d slices of %d experts", f[0], c.Slices(), c.Experts)
				}
			}
		})
	}
}

func parseShape(t *testing.T, s string) []int64 {
	if s == "-" {
		return nil
	}
	var shape []int64
	for _, d := range strings.Split(s, "x") {
		n, err := strconv.ParseInt(d, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		shape = append(shape, n)
	}
	return shape
}

func describe(c Class) string {
	s := c.Role.String()
	if c.Quantize {
		s += " q"
	} else {
		s += " keep"
	}
	if c.Transposed {
		s += " T"
	}
	if c.Experts > 0 {
		s += " e" + strconv.Itoa(c.Experts)
	}
	return s
}

// TestReasons demands that a reason tells the user more than the name.
func TestReasons(t *testing.T) {
	qwen := &Config{ModelType: "qwen3_vl_moe", TextType: "qwen3_vl_moe_text", HiddenSize: 2048}
	for _, test := range []struct {
		cfg   *Config
		name  string
		shape []int64
		want  string
	}{
		{nil, "h.0.attn.c_attn.weight", []int64{64, 192}, "there is no config.json"},
		{&Config{}, "h.0.attn.c_attn.weight", []int64{64, 192}, "names no model_type"},
		{&Config{TextType: "new_moe"}, "layers.0.experts.down_proj", []int64{8, 64, 64}, `model_type "new_moe"`},
		{qwen, "layers.0.experts.down_proj", []int64{8, 2048, 768}, "stored in x out, does not fit hidden_size 2048"},
		{nil, "layers.0.k_proj.weight", []int64{16, 64}, "fewer than 32 rows"},
	} {
		if c := Classify(test.cfg, test.name, test.shape); c.Quantize || !strings.Contains(c.Reason, test.want) {
			t.Errorf("%s: %+v, want a reason with %q", test.name, c, test.want)
		}
	}
}

func TestScaleOf(t *testing.T) {
	for name, want := range map[string]string{
		"model.layers.3.mlp.up_proj.weight_scale_inv":           "model.layers.3.mlp.up_proj.weight",
		"model.layers.3.mlp.up_proj.weight_scale":               "model.layers.3.mlp.up_proj.weight",
		"layers.0.attention.wq.qscale_weight":                   "layers.0.attention.wq.weight",
		"model.layers.0.mlp.experts.gate_up_proj_scale_inv":     "model.layers.0.mlp.experts.gate_up_proj",
		"model.layers.3.mlp.up_proj.weight":                     "",
		"model.layers.3.mlp.up_proj.input_scale":                "",
		"layers.0.attention.wq.qscale_act":                      "",
		"model.layers.0.mlp.experts.gate_up_proj_scales":        "model.layers.0.mlp.experts.gate_up_proj",
		"model.language_model.layers.0.router.per_expert_scale": "",
	} {
		if got, ok := ScaleOf(name); got != want || ok != (want != "") {
			t.Errorf("ScaleOf(%q) = %q, %v, want %q", name, got, ok, want)
		}
	}
}

func TestHeadName(t *testing.T) {
	causal := &Config{Architectures: []string{"LlamaForCausalLM"}}
	for _, test := range []struct {
		cfg             *Config
		embedding, want string
	}{
		{nil, "model.embed_tokens.weight", "lm_head.weight"},
		{causal, "model.embed_tokens.weight", "lm_head.weight"},
		{causal, "language_model.model.embed_tokens.weight", "language_model.lm_head.weight"},
		{causal, "model.language_model.embed_tokens.weight", "lm_head.weight"},
		{causal, "model.text_model.embed_tokens.weight", "lm_head.weight"},
		{causal, "model.decoder.embed_tokens.weight", "lm_head.weight"},
		{causal, "thinker.model.embed_tokens.weight", "thinker.lm_head.weight"},
		{causal, "transformer.wte.weight", "lm_head.weight"},
		{&Config{Architectures: []string{"GPT2LMHeadModel"}}, "wte.weight", "lm_head.weight"},
		{causal, "gpt_neox.embed_in.weight", "embed_out.weight"},
		{causal, "backbone.embeddings.weight", "lm_head.weight"},
		{causal, "transformer.word_embeddings.weight", "lm_head.weight"},
		{&Config{Architectures: []string{"ChatGLMModel"}}, "transformer.embedding.word_embeddings.weight", "transformer.output_layer.weight"},
		{nil, "tok_embeddings.weight", "output.weight"},
		{causal, "model.tok_embeddings.weight", "output.weight"},
		{nil, "token_embedder.weight", "output.weight"},
		{nil, "model.transformer.wte.weight", "model.transformer.ff_out.weight"},
		{&Config{Architectures: []string{"T5ForConditionalGeneration"}}, "shared.weight", "lm_head.weight"},

		{&Config{Architectures: []string{"MistralModel"}}, "embed_tokens.weight", ""},
		{&Config{Architectures: []string{"Qwen2ForSequenceClassification"}}, "model.embed_tokens.weight", ""},
		{nil, "embeddings.word_embeddings.weight", ""},
		{nil, "encoder.embed_tokens.weight", ""},
		{nil, "model.layers.61.embed_tokens.weight", ""},
		{nil, "model.language_model.embed_tokens_per_layer.weight", ""},
		{nil, "model.layers.0.mlp.up_proj.weight", ""},
		{nil, "lm_head.weight", ""},
	} {
		if got := HeadName(test.cfg, test.embedding); got != test.want {
			t.Errorf("HeadName(%+v, %q) = %q, want %q", test.cfg, test.embedding, got, test.want)
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, test := range classifyTests {
		for line := range strings.Lines(test.tensors) {
			if name := strings.Fields(line); len(name) > 0 {
				f.Add(name[0], uint8(2), int64(64))
			}
		}
	}
	for _, name := range []string{"", ".", "weight", "..weight", "experts", "gate"} {
		f.Add(name, uint8(3), int64(0))
	}
	cfg := &Config{ModelType: "gpt_oss", TextType: "gpt_oss", HiddenSize: 64, NumExperts: 64}
	f.Fuzz(func(t *testing.T, name string, ndim uint8, dim int64) {
		shape := make([]int64, ndim%6)
		for i := range shape {
			shape[i] = dim
		}
		for _, cfg := range []*Config{nil, cfg} {
			c := Classify(cfg, name, shape)
			if c.Quantize != (c.Reason == "") || c.Quantize && len(shape) != 2 && (len(shape) != 3 || c.Experts == 0) {
				t.Errorf("%q %v: %+v", name, shape, c)
			}
			HeadName(cfg, name)
		}
	})
}
