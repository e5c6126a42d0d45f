package arch

var _ = register("granitemoe", Facts{
	Title: "Granite-MoE", Class: "GraniteMoeForCausalLM",
	Layer:    join(preNorms, separateAttention, graniteExperts),
	LlamaCpp: &LlamaCpp{Name: "granitemoe", Permuted: true, Scales: true, Config: localExpertsMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 0, 0, 1e-6)
		k.positions(c, 2048, ropeDefaults{theta: 10000})
		k.attentionBias(c)
		k.graniteScales(c)
		k.experts(c, "num_local_experts", 8, 2)
	},
})

func localExpertsMetadata(m Metadata) map[string]any {
	return map[string]any{"hidden_act": "silu", "num_local_experts": m.Count("expert_count", -1), "num_experts_per_tok": m.Count("expert_used_count", -1)}
}

var graniteExperts = []Naming{
	{Router, "block_sparse_moe.router.layer", "ffn_gate_inp"},
	{GateUpExperts, "block_sparse_moe.input_linear", ""},
	{DownExperts, "block_sparse_moe.output_linear", "ffn_down_exps"},
}
