package arch

var _ = register("qwen3_next", Facts{
	Title: "Qwen3-Next", Class: "Qwen3NextForCausalLM",
	Layer: join(preNorms, separateAttention, queryKeyNorms, []Naming{
		{DeltaQKVZ, "linear_attn.in_proj_qkvz", "ssm_in"},
		{DeltaBA, "linear_attn.in_proj_ba", "ssm_ba"},
	}, deltaNets, separateMLP, separateExperts, qwenShared),
	read: readQwen3Next,
})

func readQwen3Next(k *keys, c *ForwardConfig) {
	k.readCommon(c, 16, 2, 256, 1e-6)
	k.partialPositions(c, 32768, 10000, 0.25)
	k.silu()
	k.never("attention_bias")
	k.deltaNet(c)
	k.irrelevant("output_router_logits", "router_aux_loss_coef", "num_nextn_predict_layers", "use_sliding_window")
	c.Experts = &ExpertConfig{
		Count: k.size("num_experts", 512), PerToken: k.size("num_experts_per_tok", 10), Intermediate: k.size("moe_intermediate_size", 512),
		Normalize: k.boolean("norm_topk_prob", true), Shared: k.size("shared_expert_intermediate_size", 512),
	}
	k.sparseLayers(c)
}
