package arch

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseConfig(t *testing.T) {
	for _, test := range []struct {
		name, raw string
		want      Config
	}{
		{"empty", `{}`, Config{}},
		{"llama, tied", `{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":2048,"vocab_size":128256,"tie_word_embeddings":true}`,
			Config{ModelType: "llama", TextType: "llama", Architectures: []string{"LlamaForCausalLM"}, TieWordEmbeddings: true, TieStated: true, VocabSize: 128256, HiddenSize: 2048}},
		{"llama's default", `{"model_type":"llama"}`, Config{ModelType: "llama", TextType: "llama"}},
		{"gemma's default", `{"model_type":"gemma2"}`, Config{ModelType: "gemma2", TextType: "gemma2", TieWordEmbeddings: true}},
		{"null is not said", `{"model_type":"gpt2","tie_word_embeddings":null,"n_embd":768}`,
			Config{ModelType: "gpt2", TextType: "gpt2", TieWordEmbeddings: true, HiddenSize: 768}},
		{"default overridden", `{"model_type":"gemma","tie_word_embeddings":false}`, Config{ModelType: "gemma", TextType: "gemma", TieStated: true}},
		{"lfm2's spelling", `{"model_type":"lfm2","tie_embedding":false}`, Config{ModelType: "lfm2", TextType: "lfm2", TieStated: true}},
		{"nested", `{"model_type":"gemma3","hidden_size":1,"text_config":{"model_type":"gemma3_text","hidden_size":2560},"vision_config":{"hidden_size":1152,"model_type":"siglip"}}`,
			Config{ModelType: "gemma3", TextType: "gemma3_text", TieWordEmbeddings: true, HiddenSize: 2560}},
		{"nested without a type", `{"model_type":"llava","text_config":{"hidden_size":64},"tie_word_embeddings":false}`,
			Config{ModelType: "llava", TextType: "llava", TieStated: true, HiddenSize: 64}},
		{"nested null", `{"model_type":"qwen2_vl","text_config":null,"hidden_size":1536}`, Config{ModelType: "qwen2_vl", TextType: "qwen2_vl", HiddenSize: 1536}},
		{"nested twice", `{"model_type":"qwen3_omni_moe","thinker_config":{"model_type":"qwen3_omni_moe_thinker","text_config":{"model_type":"qwen3_omni_moe_text","num_experts":128,"vocab_size":152064}}}`,
			Config{ModelType: "qwen3_omni_moe", TextType: "qwen3_omni_moe_text", NumExperts: 128, VocabSize: 152064}},
		{"tied by both", `{"model_type":"qwen3_vl","text_config":{"model_type":"qwen3_vl_text","tie_word_embeddings":true},"tie_word_embeddings":true}`,
			Config{ModelType: "qwen3_vl", TextType: "qwen3_vl_text", TieWordEmbeddings: true, TieStated: true}},
		{"contradiction", `{"model_type":"llava_onevision","text_config":{"model_type":"qwen2","tie_word_embeddings":true},"tie_word_embeddings":false}`,
			Config{ModelType: "llava_onevision", TextType: "qwen2"}},
		{"fp8", `{"model_type":"deepseek_v3","n_routed_experts":256,"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`,
			Config{ModelType: "deepseek_v3", TextType: "deepseek_v3", NumExperts: 256, WeightBlockSize: [2]int{128, 128}}},
		{"fp8 per tensor", `{"quantization_config":{"quant_method":"fp8","weight_block_size":null}}`, Config{}},
		{"Python's numbers", `{"time_step_limit":[0.0, Infinity],"a":-Infinity,"b":NaN,"s":"NaN \" Infinity","model_type":"mamba2"}`,
			Config{ModelType: "mamba2", TextType: "mamba2"}},
		{"counts that are none", `{"hidden_size":[64,32],"vocab_size":-1,"num_experts":"8"}`, Config{}},
	} {
		got, err := ParseConfig([]byte(test.raw))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if diff := cmp.Diff(test.want, *got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.name, diff)
		}
	}
}

func TestParseConfigErrors(t *testing.T) {
	for _, test := range []struct{ raw, want string }{
		{``, "not valid JSON at byte 0"},
		{`{"model_type":`, "not valid JSON at byte 14"},
		{`{"a": Infinity, "b" 1}`, "not valid JSON at byte 21"},
		{`[]`, "not a JSON object"},
		{`null`, "not a JSON object"},
		{`{"model_type":7}`, "model_type is not a string"},
		{`{"text_config":{"model_type":7}}`, "text_config.model_type is not a string"},
		{`{"text_config":[]}`, "text_config is not an object"},
		{`{"architectures":"x"}`, "architectures is not a list of strings"},
		{`{"tie_word_embeddings":"yes"}`, "tie_word_embeddings is neither true nor false"},
		{`{"quantization_config":{"weight_block_size":[128]}}`, "quantization_config.weight_block_size is [128]"},
		{`{"quantization_config":{"weight_block_size":[128,0]}}`, "quantization_config.weight_block_size is [128 0]"},
		{`{"quantization_config":{"weight_block_size":128}}`, "quantization_config.weight_block_size is not a list"},
	} {
		_, err := ParseConfig([]byte(test.raw))
		var ce *ConfigError
		if !errors.As(err, &ce) || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.raw, err, test.want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"model_type":"llama","text_config":{"hidden_size":64},"x":[-Infinity,NaN,"\""]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := string(raw)
		if c, err := ParseConfig(raw); (c == nil) == (err == nil) {
			t.Errorf("config %v with error %v", c, err)
		}
		if string(raw) != before {
			t.Error("the input was changed")
		}
	})
}
