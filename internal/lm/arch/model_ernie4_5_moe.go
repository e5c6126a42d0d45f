package arch

var _ = register("ernie4_5_moe", Facts{
	Title: "ERNIE 4.5 (mixture)", Class: "Ernie4_5_MoeForCausalLM", tied: true,
	Layer: join(preNorms, separateAttention, separateMLP, separateExperts, sharedExperts,
		[]Naming{{RouterCorrection, "mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"}}),
	LlamaCpp: &LlamaCpp{Name: "ernie4_5-moe", Mixture: LlamaCppMixture{Dense: true}, Config: func(m Metadata) map[string]any {
		return map[string]any{
			"hidden_act":      "silu",
			"moe_num_experts": m.Count("expert_count", -1), "moe_k": m.Count("expert_used_count", -1),
			"moe_intermediate_size":  m.Count("expert_feed_forward_length", -1),
			"moe_num_shared_experts": m.Count("expert_shared_feed_forward_length", 0) / max(1, m.Count("expert_feed_forward_length", -1)),
			"moe_layer_start_index":  m.Count("leading_dense_block_count", 0), "moe_layer_interval": m.Count("interleave_moe_layer_step", 1),
		}
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 20, 4, 0, 1e-5)
		k.positions(c, 131072, ropeDefaults{theta: 500000})
		c.Ropes[0].Neighbours = true
		k.never("use_bias")
		only(k, "moe_gate", "topk", "is not a string")
		k.always("moe_use_aux_free")
		k.irrelevant("moe_capacity", "moe_norm_min", "moe_layer_freq")
		k.predictors(c)
		width := k.size("moe_intermediate_size", 1536)
		c.Experts = &ExpertConfig{
			Count: k.size("moe_num_experts", 64), PerToken: k.size("moe_k", 6), Intermediate: width, Normalize: true,
			Shared: width * k.count("moe_num_shared_experts", 2),
		}
		first, last, interval := k.count("moe_layer_start_index", 1), len(c.Layers)-1, k.size("moe_layer_interval", 1)
		if end := read(k, "moe_layer_end_index", -1, "is not an integer"); end != -1 {
			last = end
		}
		for i := range c.Layers {
			c.Layers[i].Experts = (i+1)%max(1, interval) == 0 && i >= first && i <= last
		}
	},
})
