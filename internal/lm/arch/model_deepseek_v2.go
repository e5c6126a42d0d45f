package arch

var _ = register("deepseek_v2", Facts{
	Title: "DeepSeek-V2", Class: "DeepseekV2ForCausalLM",
	Layer: join(preNorms, latentAttention, separateMLP, separateExperts, sharedExperts),
	LlamaCpp: &LlamaCpp{
		Name: "deepseek2", Mixture: LlamaCppMixture{Weights: WeightKeys, Dense: true, Groups: true}, Check: checkLatents,
		Change: func(c *ForwardConfig) (difference string) {
			if c.Experts.Groups > 1 {
				c.Experts.GroupBest, difference = false, "chooses groups of experts by the sum of their two best scores, not by the best score (topk_method group_limited_greedy): logits differ from Transformers'"
			}
			return difference
		},
		Config: func(m Metadata) map[string]any {
			config := deepseekMetadata(m)
			if config["topk_method"] = "greedy"; config["n_group"] != 1 {
				config["topk_method"] = "group_limited_greedy"
			}
			return config
		},
	},
	read: func(k *keys, c *ForwardConfig) {
		k.readLatent(c, 32, 2048, 1536)
		only(k, "scoring_func", "softmax", "is not a string")
		only(k, "norm_topk_prob", false, "is neither true nor false")
		k.deepseekExperts(c, 64, 0, 1407, 0)
		c.Experts.Normalize, c.Experts.GroupBest = false, true
		if method := k.string("topk_method", "greedy"); method == "greedy" {
			c.Experts.Groups = 1
		} else if method != "group_limited_greedy" {
			k.fail("topk_method", "is %q: greedy or group_limited_greedy was expected", method)
		}
	},
})
