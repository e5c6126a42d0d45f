package arch

var _ = register("qwen3_5_moe_text", Facts{
	Title: "Qwen3.5-MoE", Class: "Qwen3_5MoeForCausalLM",
	Layer:    join(qwen35Norms, separateAttention, queryKeyNorms, qwen35Inputs, deltaNets, separateExperts, qwenShared),
	LlamaCpp: &LlamaCpp{Name: "qwen35moe", PartialRope: true, TiledValues: true, Check: checkDeltaNets, Config: qwenMixtureMetadata},
	vocab:    248320,
	read: func(k *keys, c *ForwardConfig) {
		if !k.has("intermediate_size") && k.has("moe_intermediate_size") { // no layer is dense
			k.keys["intermediate_size"] = k.keys["moe_intermediate_size"]
		}
		k.readQwen35Common(c, 16, 2)
		k.irrelevant("norm_topk_prob", "decoder_sparse_step")
		e := k.experts(c, "num_experts", 256, 8)
		e.Intermediate, e.Shared = k.size("moe_intermediate_size", 512), k.size("shared_expert_intermediate_size", 512)
	},
})

var _ = registerMultimodal("qwen3_5_moe", nesting{class: "Qwen3_5MoeForConditionalGeneration", text: "qwen3_5_moe_text", irrelevant: qwenImages})
