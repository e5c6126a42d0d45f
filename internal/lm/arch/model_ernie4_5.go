package arch

var _ = register("ernie4_5", Facts{
	Title: "ERNIE 4.5", Class: "Ernie4_5ForCausalLM", tied: true,
	Layer:    join(preNorms, separateAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "ernie4_5", Config: siluMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 16, 2, 128, 1e-5)
		k.positions(c, 131072, ropeDefaults{theta: 500000})
		c.Ropes[0].Neighbours = true
		if c.MLPBias = k.boolean("use_bias", false); c.MLPBias {
			c.AttentionBias = AllBias
		}
	},
})
