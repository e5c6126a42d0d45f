package arch

var _ = register("granite", Facts{
	Title: "Granite", Class: "GraniteForCausalLM",
	Layer:    join(preNorms, separateAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "granite", Permuted: true, Bias: AllBias, MLPBias: true, Scales: true, Config: llamaMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 0, 0, 1e-6)
		k.positions(c, 2048, ropeDefaults{theta: 10000})
		k.attentionBias(c)
		c.MLPBias = k.boolean("mlp_bias", false)
		k.graniteScales(c)
	},
})

// graniteScales reads the factors of Granite's models.
func (k *keys) graniteScales(c *ForwardConfig) {
	c.EmbeddingScale = k.positive("embedding_multiplier", 1)
	c.ResidualScale = k.positive("residual_multiplier", 1)
	c.AttentionScale = k.positive("attention_multiplier", 1)
	c.LogitScale = 1 / k.positive("logits_scaling", 1)
}
