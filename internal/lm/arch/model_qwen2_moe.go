package arch

var _ = register("qwen2_moe", Facts{
	Title: "Qwen2-MoE", Class: "Qwen2MoeForCausalLM",
	Layer: join(preNorms, separateAttention, separateMLP, separateExperts, qwenShared),
	LlamaCpp: &LlamaCpp{Name: "qwen2moe", Square: true, Bias: QKVBias, Mixture: LlamaCppMixture{Weights: PlainWeights}, Config: func(m Metadata) map[string]any {
		config := qwenExpertMetadata(m)
		config["norm_topk_prob"], config["qkv_bias"] = false, m.HasTensor("blk.0.attn_q.bias")
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 16, 16, 0, 1e-6)
		k.positions(c, 32768, ropeDefaults{theta: 10000})
		k.never("mlp_bias")
		k.biases(c, "qkv_bias", true, QKVBias)
		k.never("use_sliding_window") // implementations disagree on the layers
		k.irrelevant("sliding_window", "max_window_layers")
		k.slidingLayers(c, 0, func(int) bool { return false })
		k.qwenExperts(c, 60, 4, 1408, 5632, false)
	},
})

// qwenShared is an expert that sees every token, with a factor of its own for each token.
var qwenShared = join(renamed(sharedExperts, "shared_experts", "shared_expert"), []Naming{{SharedRouter, "mlp.shared_expert_gate", "ffn_gate_inp_shexp"}})
