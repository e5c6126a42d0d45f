package arch

var _ = register("qwen3", Facts{
	Title: "Qwen3", Class: "Qwen3ForCausalLM",
	Layer:    join(preNorms, separateAttention, queryKeyNorms, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "qwen3", Bias: QKVBias, Config: qwenMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 0, 32, 128, 1e-6)
		k.positions(c, 32768, ropeDefaults{theta: 10000})
		k.never("mlp_bias")
		k.attentionBias(c)
		c.QKNorm = HeadNorms
		k.qwenWindows(c)
	},
})
