package arch

var _ = register("stablelm", Facts{
	Title: "StableLM", Class: "StableLmForCausalLM",
	Layer: join(preNorms, separateAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "stablelm", Square: true, Bias: QKVBias, PartialRope: true, Check: untied, Config: func(m Metadata) map[string]any {
		return map[string]any{
			"hidden_act": "silu", "layer_norm_eps": m.Positive("attention.layer_norm_epsilon", 0), "use_qkv_bias": m.HasTensor("blk.0.attn_q.bias"),
			"use_parallel_residual": m.Flag("use_parallel_residual", false),
		}
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 32, 0, 1e-5)
		c.NormEps = k.positive("layer_norm_eps", 1e-5)
		k.positions(c, 4096, ropeDefaults{theta: 10000, part: 0.25})
		k.biases(c, "use_qkv_bias", false, QKVBias)
		k.never("qk_layernorm", "use_parallel_residual") // of the 12B model
		c.LayerNorm, c.NormBias = true, true
	},
})
