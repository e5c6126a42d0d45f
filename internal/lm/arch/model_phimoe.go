package arch

import "maps"

var _ = register("phimoe", Facts{
	Title: "Phi-3.5-MoE", Class: "PhimoeForCausalLM",
	Layer: join(preNorms, separateAttention, mixtralExperts),
	LlamaCpp: &LlamaCpp{
		Name: "phimoe", Square: true, Bias: AllBias, RopeFactors: []string{"longrope"}, Factors: true, Mscales: true, Windows: WrittenWindow,
		Change: func(c *ForwardConfig) string {
			c.LayerNorm, c.Experts.Sparse, c.Experts.Normalize = false, false, true
			return "subtracts no mean in norms, and weights the two best experts by their softmax, not by a sparse mixer (its pull request 11003): logits differ from Transformers'"
		},
		Check: func(c *ForwardConfig) string {
			if c.AttentionBias != AllBias || !c.HeadBias {
				return "models without biases of attention and lm_head (attention_bias, lm_head_bias)"
			}
			return ""
		},
		Config: func(m Metadata) map[string]any {
			config := localExpertsMetadata(m)
			config["attention_bias"], config["lm_head_bias"] = true, true
			maps.Copy(config, windowMetadata(m))
			return config
		},
	},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 8, 0, 1e-5)
		k.positions(c, 4096*32, ropeDefaults{theta: 1e6, mscales: true, originalPositions: k.count("original_max_position_embeddings", 0)})
		k.attentionBias(c)
		c.LayerNorm, c.NormBias = true, true
		if c.HeadBias = k.boolean("lm_head_bias", false); c.HeadBias && c.Tied {
			k.fail("lm_head_bias", "is true, but the lm_head is the embedding: an lm_head of its own was expected")
		}
		k.irrelevant("input_jitter_noise")
		only(k, "num_experts_per_tok", 2, "is not an integer") // the sparse mixer chooses two
		c.Experts = &ExpertConfig{
			Count: k.size("num_local_experts", 16), PerToken: 2, Intermediate: c.Intermediate,
			Sparse: true, Jitter: k.positive("router_jitter_noise", 0.01),
		}
		c.windows(k.window(0))
		c.expertsFrom(0)
	},
})
