package arch

var _ = register("lfm2_moe", Facts{
	Title: "LFM2-MoE", Class: "Lfm2MoeForCausalLM", tied: true,
	Layer: join(lfm2Mixers, lfm2MLP, []Naming{
		{Router, "feed_forward.gate", "ffn_gate_inp"},
		{GateExperts, "feed_forward.experts.*.w1", "ffn_gate_exps"},
		{UpExperts, "feed_forward.experts.*.w3", "ffn_up_exps"},
		{DownExperts, "feed_forward.experts.*.w2", "ffn_down_exps"},
		{RouterCorrection, "feed_forward.expert_bias", "exp_probs_b.bias"},
	}),
	FinalNorm: lfm2Final,
	LlamaCpp: &LlamaCpp{Name: "lfm2moe", Square: true, States: "conv", Mixture: LlamaCppMixture{Sigmoid: true, Dense: true}, Config: func(m Metadata) map[string]any {
		config := lfm2Metadata(m)
		delete(config, "block_auto_adjust_ff_dim")
		config["num_experts"], config["num_experts_per_tok"] = m.Count("expert_count", -1), m.Count("expert_used_count", -1)
		config["moe_intermediate_size"], config["num_dense_layers"] = m.Count("expert_feed_forward_length", -1), m.Count("leading_dense_block_count", 0)
		return config
	}},
	vocab: 65536,
	read: func(k *keys, c *ForwardConfig) {
		k.readLfm2Common(c)
		k.mixers(c, ShortConvMixer, func(int) bool { return false }, "conv")
		k.always("use_expert_bias")
		c.Experts = &ExpertConfig{
			Count: k.size("num_experts", 32), PerToken: k.size("num_experts_per_tok", 4), Intermediate: k.size("moe_intermediate_size", 1792),
			Normalize: k.boolean("norm_topk_prob", true), Sigmoid: true, Scale: k.positive("routed_scaling_factor", 1),
		}
		c.expertsFrom(k.count("num_dense_layers", 2))
	},
})
