package arch

var _ = register("dots1", Facts{
	Title: "dots.llm1", Class: "Dots1ForCausalLM",
	Layer: join(preNorms, separateAttention, queryKeyNorms, deepseekMixtures),
	LlamaCpp: &LlamaCpp{Name: "dots1", Ungrouped: true, Mixture: LlamaCppMixture{Weights: WeightKeys, Sigmoid: true, Dense: true}, Check: untied, Config: func(m Metadata) map[string]any {
		config := deepseekExpertMetadata(m)
		config["hidden_act"], config["sliding_window"] = "silu", nil
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 32, 0, 1e-6)
		k.positions(c, 2048, ropeDefaults{theta: 10000})
		k.attentionBias(c)
		c.QKNorm = HeadNorms
		window, first := k.window(4096), k.count("max_window_layers", 62)
		k.slidingLayers(c, window, func(i int) bool { return window != 0 && i >= first })
		k.irrelevant("scoring_func", "topk_method", "moe_layer_freq") // to Transformers
		normalize := k.boolean("norm_topk_prob", false)
		k.deepseekExperts(c, 0, 0, 1408, 0)
		c.Experts.Sigmoid, c.Experts.Normalize = true, normalize
	},
})
