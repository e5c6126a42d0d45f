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
	read:     readGlm,
})
