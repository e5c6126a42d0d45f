package arch

var _ = register("mixtral", Facts{
	Title: "Mixtral", Class: "MixtralForCausalLM",
	Layer: join(preNorms, separateAttention, mixtralExperts),
	LlamaCpp: &LlamaCpp{Name: "llama", Permuted: true, Bias: AllBias, RopeFactors: llamaLlamaCpp.RopeFactors, Mixture: LlamaCppMixture{DenseWidth: true}, Config: func(m Metadata) map[string]any {
		config := localExpertsMetadata(m)
		config["sliding_window"] = nil
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 0, 8, 0, 1e-5)
		k.positions(c, 4096*32, ropeDefaults{theta: 1e6})
		k.never("attention_bias", "mlp_bias")
		k.irrelevant("router_jitter_noise")
		k.experts(c, "num_local_experts", 8, 2)
		c.windows(k.window(0))
	},
})

var mixtralExperts = []Naming{
	{Router, "block_sparse_moe.gate", "ffn_gate_inp"},
	{GateExperts, "block_sparse_moe.experts.*.w1", "ffn_gate_exps"},
	{UpExperts, "block_sparse_moe.experts.*.w3", "ffn_up_exps"},
	{DownExperts, "block_sparse_moe.experts.*.w2", "ffn_down_exps"},
}
