package arch

var _ = register("olmoe", Facts{
	Title: "OLMoE", Class: "OlmoeForCausalLM",
	Layer: join(preNorms, separateAttention, queryKeyNorms, separateExperts),
	LlamaCpp: &LlamaCpp{Name: "olmoe", Square: true, Ungrouped: true, Mixture: LlamaCppMixture{Weights: PlainWeights}, Config: func(m Metadata) map[string]any {
		return map[string]any{"hidden_act": "silu", "num_experts": m.Count("expert_count", -1), "num_experts_per_tok": m.Count("expert_used_count", -1), "norm_topk_prob": false}
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 16, 0, 0, 1e-5)
		k.positions(c, 4096, ropeDefaults{theta: 10000})
		k.attentionBias(c)
		if k.has("clip_qkv") {
			k.fail("clip_qkv", "is %s: only null was expected", k.keys["clip_qkv"])
		}
		c.QKNorm = WholeNorms
		k.experts(c, "num_experts", 64, 8).Normalize = k.boolean("norm_topk_prob", false)
	},
})
