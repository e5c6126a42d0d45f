package arch

var _ = register("olmo2", Facts{
	Title: "OLMo 2", Class: "Olmo2ForCausalLM",
	Layer:    join(postNorms, separateAttention, queryKeyNorms, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "olmo2", Config: siluMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 0, 0, 1e-5)
		k.positions(c, 2048, ropeDefaults{theta: 10000})
		k.attentionBias(c)
		c.QKNorm = WholeNorms
	},
})
