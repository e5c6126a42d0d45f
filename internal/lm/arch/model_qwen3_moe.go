package arch

import "slices"

var _ = register("qwen3_moe", Facts{
	Title: "Qwen3-MoE", Class: "Qwen3MoeForCausalLM",
	Layer: join(preNorms, separateAttention, queryKeyNorms, separateMLP, separateExperts),
	LlamaCpp: &LlamaCpp{Name: "qwen3moe", Bias: QKVBias, Config: func(m Metadata) map[string]any {
		config, perToken := qwenMetadata(m), m.Count("expert_used_count", -1)
		config["num_experts"], config["num_experts_per_tok"], config["norm_topk_prob"], config["decoder_sparse_step"] = m.Count("expert_count", -1), perToken, true, 1
		config["moe_intermediate_size"] = m.Count("expert_feed_forward_length", m.Count("feed_forward_length", -1)/max(1, perToken))
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 0, 4, 0, 1e-6)
		k.positions(c, 32768, ropeDefaults{theta: 10000})
		k.never("mlp_bias")
		k.attentionBias(c)
		c.QKNorm = HeadNorms
		k.never("use_sliding_window") // implementations disagree on the layers
		k.irrelevant("sliding_window", "max_window_layers")
		k.slidingLayers(c, 0, func(int) bool { return false })
		k.qwenExperts(c, 128, 8, 768, 0, false)
	},
})

// sparseLayers reads which layers of Qwen's models are mixtures.
func (k *keys) sparseLayers(c *ForwardConfig) {
	step := k.size("decoder_sparse_step", 1)
	dense := read(k, "mlp_only_layers", []int(nil), "is not a list of integers")
	for i := range c.Layers {
		c.Layers[i].Experts = (i+1)%max(1, step) == 0 && !slices.Contains(dense, i)
	}
}
