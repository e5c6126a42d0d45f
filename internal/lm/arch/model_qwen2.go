package arch

var _ = register("qwen2", Facts{
	Title: "Qwen2", Class: "Qwen2ForCausalLM",
	Layer:    join(preNorms, separateAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "qwen2", Square: true, Bias: QKVBias, Config: qwenMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 0, 32, 0, 1e-6)
		k.positions(c, 32768, ropeDefaults{theta: 10000})
		k.never("mlp_bias", "use_mrope")
		k.always("attention_bias")
		c.AttentionBias = QKVBias
		k.qwenWindows(c)
	},
})

// qwenMetadata has no sliding window: llama.cpp knows none here.
func qwenMetadata(Metadata) map[string]any {
	return map[string]any{"hidden_act": "silu", "use_sliding_window": false}
}
