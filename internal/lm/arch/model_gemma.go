package arch

import "math"

var _ = register("gemma", Facts{
	Title: "Gemma", Class: "GemmaForCausalLM", tied: true,
	Layer: join(preNorms, separateAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "gemma", Tied: true, Config: func(m Metadata) map[string]any {
		return map[string]any{"hidden_act": "gelu_pytorch_tanh"}
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readHeads(c, 16, 16, 256, 1e-6)
		c.Intermediate = k.size("intermediate_size", 0)
		k.positions(c, 8192, ropeDefaults{theta: 10000})
		// Published files say gelu and mean its approximation: transformers reads them so.
		c.Activation = "gelu_pytorch_tanh"
		if k.string("hidden_act", c.Activation) != "gelu" {
			only(k, "hidden_act", c.Activation, "is not a string")
		}
		if k.has("hidden_activation") {
			only(k, "hidden_activation", c.Activation, "is not a string")
		}
		k.never("attention_bias", "use_bidirectional_attention")
		c.PlusOne = true
		c.EmbeddingScale = math.Sqrt(float64(c.HiddenSize))
	},
})
