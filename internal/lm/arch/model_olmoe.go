package arch

var _ = register("olmoe", Facts{
	Title: "OLMoE", Class: "OlmoeForCausalLM",
	Layer: join(preNorms, separateAttention, queryKeyNorms, separateExperts),
	LlamaCpp: &LlamaCpp{Name: "olmoe", Square: true, Ungrouped: true, Mixture: LlamaCppMixture{Weights: PlainWeights}, Config: func(m Metadata) map[string]any {
		return map[string]any{
			"hidden_act":  "silu",
			"num_experts": m.Count("expert_count", -1), "num_experts_per_tok": m.Count("expert_used_count", -1), "norm_topk_prob": false,
		}
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 16, 0, 0, 1e-5)
		k.positions(c, 4096, ropeDefaults{theta: 10000})
		k.attentionBias(c)
		if k.has("clip_qkv") {
			k.fail("clip_qkv", "is %s: only null was expected", k.keys["clip_qkv"])
		}
		k.irrelevant("output_router_logits", "router_aux_loss_coef")
		c.QKNorm = WholeNorms
		c.Experts = &ExpertConfig{
			Count: k.size("num_experts", 64), PerToken: k.size("num_experts_per_tok", 8), Intermediate: c.Intermediate, Normalize: k.boolean("norm_topk_prob", false),
		}
		c.expertsFrom(0)
	},
})
