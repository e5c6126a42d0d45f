package arch

var _ = register("glm4", Facts{
	Title: "GLM-4", Class: "Glm4ForCausalLM",
	Layer: join([]Naming{
		{InputNorm, "input_layernorm", "attn_norm"},
		{PostAttentionNorm, "post_self_attn_layernorm", "post_attention_norm"},
		{FeedForwardNorm, "post_attention_layernorm", "ffn_norm"},
		{PostFeedForwardNorm, "post_mlp_layernorm", "post_ffw_norm"},
	}, separateAttention, fusedMLP),
	LlamaCpp: &LlamaCpp{Name: "glm4", Bias: QKVBias, PartialRope: true, Config: siluBiasMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 2, 128, 0.00000015625)
		k.positions(c, 131072, ropeDefaults{theta: 10000, part: 0.5})
		c.Ropes[0].Neighbours = true
		k.biases(c, "attention_bias", true, QKVBias)
	},
})
