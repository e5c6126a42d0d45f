package arch

var _ = register("glm4_moe", Facts{
	Title: "GLM-4.5", Class: "Glm4MoeForCausalLM",
	Layer: join(qwen35Norms, separateAttention, queryKeyNorms, deepseekMixtures),
	LlamaCpp: &LlamaCpp{Name: "glm4moe", Bias: QKVBias, PartialRope: true, Mixture: LlamaCppMixture{Weights: WeightKeys, Sigmoid: true, Dense: true, Groups: true}, Config: func(m Metadata) map[string]any {
		config := deepseekExpertMetadata(m)
		config["hidden_act"], config["attention_bias"] = "silu", m.HasTensor("blk.0.attn_q.bias")
		config["use_qk_norm"] = m.HasTensor("blk.0.attn_q_norm.weight")
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 96, 8, 0, 1e-5)
		k.positions(c, 131072, ropeDefaults{theta: 10000, part: 0.5})
		k.biases(c, "attention_bias", false, QKVBias)
		if k.boolean("use_qk_norm", false) {
			c.QKNorm = HeadNorms
		}
		k.predictors(c)
		k.sigmoidExperts(c, 128, 8, 1408, 1)
	},
})

// deepseekExpertMetadata returns the keys that deepseekExperts reads.
func deepseekExpertMetadata(m Metadata) map[string]any {
	return map[string]any{
		"n_routed_experts": m.Count("expert_count", -1), "num_experts_per_tok": m.Count("expert_used_count", -1),
		"moe_intermediate_size": m.Count("expert_feed_forward_length", -1), "n_shared_experts": m.Count("expert_shared_count", 0),
		"first_k_dense_replace": m.Count("leading_dense_block_count", 0),
		"norm_topk_prob":        m.Flag("expert_weights_norm", false), "routed_scaling_factor": m.Positive("expert_weights_scale", 1),
		"n_group": max(1, m.Count("expert_group_count", 1)), "topk_group": max(1, m.Count("expert_group_used_count", 1)),
	}
}

// sigmoidExperts reads the same for scores that are sigmoids.
func (k *keys) sigmoidExperts(c *ForwardConfig, count, perToken, width, dense int) {
	only(k, "scoring_func", "sigmoid", "is not a string")
	only(k, "topk_method", "noaux_tc", "is not a string")
	k.deepseekExperts(c, count, perToken, width, dense)
	c.Experts.Sigmoid = true
}

// deepseekExperts reads the keys of mixtures in DeepSeek's way, with their defaults.
func (k *keys) deepseekExperts(c *ForwardConfig, count, perToken, width, dense int) {
	c.Experts = &ExpertConfig{
		Count: k.size("n_routed_experts", count), PerToken: k.size("num_experts_per_tok", perToken),
		Intermediate: k.size("moe_intermediate_size", width), Normalize: k.boolean("norm_topk_prob", true),
		Groups: max(1, k.count("n_group", 1)), GroupsPerToken: max(1, k.count("topk_group", 1)), Scale: k.positive("routed_scaling_factor", 1),
	}
	c.Experts.Shared = c.Experts.Intermediate * k.count("n_shared_experts", 1)
	c.expertsFrom(k.count("first_k_dense_replace", dense))
}
