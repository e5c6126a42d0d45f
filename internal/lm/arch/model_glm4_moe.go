package arch

var _ = register("glm4_moe", Facts{
	Title: "GLM-4.5", Class: "Glm4MoeForCausalLM",
	Layer: join(preNorms, separateAttention, queryKeyNorms, separateMLP, separateExperts, sharedExperts,
		[]Naming{{RouterCorrection, "mlp.gate.e_score_correction_bias", "exp_probs_b.bias"}}),
	read: readGlm4Moe,
})

func readGlm4Moe(k *keys, c *ForwardConfig) {
	k.readCommon(c, 96, 8, 0, 1e-5)
	k.partialPositions(c, 131072, 10000, 0.5)
	k.silu()
	if k.boolean("attention_bias", false) {
		c.AttentionBias = QKVBias
	}
	if k.boolean("use_qk_norm", false) {
		c.QKNorm = HeadNorms
	}
	k.irrelevant("output_router_logits", "num_nextn_predict_layers", "num_mtp_layers")
	k.deepseekExperts(c, 128, 8, 1408, 1)
	c.Experts.Sigmoid = true
}

// deepseekExperts reads the keys of mixtures in DeepSeek's way, with their defaults.
func (k *keys) deepseekExperts(c *ForwardConfig, count, perToken, width, dense int) {
	c.Experts = &ExpertConfig{
		Count: k.size("n_routed_experts", count), PerToken: k.size("num_experts_per_tok", perToken),
		Intermediate: k.size("moe_intermediate_size", width), Normalize: k.boolean("norm_topk_prob", true),
		Groups: k.size("n_group", 1), GroupsPerToken: k.size("topk_group", 1), Scale: k.positive("routed_scaling_factor", 1),
	}
	c.Experts.Shared = c.Experts.Intermediate * k.count("n_shared_experts", 1)
	dense = k.count("first_k_dense_replace", dense)
	for i := range c.Layers {
		c.Layers[i].Experts = i >= dense
	}
}
