package arch

var _ = register("falcon_h1", Facts{
	Title: "Falcon-H1", Class: "FalconH1ForCausalLM",
	Layer:     join(feedForwardNames, separateAttention, mambaMixers),
	FinalNorm: Naming{HF: "final_layernorm", GGUF: "output_norm"},
	LlamaCpp: &LlamaCpp{Name: "falcon-h1", Multiplied: true, Check: func(c *ForwardConfig) string { return c.Mamba.checkLlamaCpp() }, Config: func(m Metadata) map[string]any {
		config := mambaMetadata(m) // multipliers are 1
		config["hidden_act"], config["mamba_d_ssm"] = "silu", m.Count("ssm.inner_size", -1)
		config["mamba_rms_norm"], config["mamba_norm_before_gate"] = m.HasTensor("blk.0.ssm_norm.weight"), false
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 8, 0, 1e-5)
		k.positions(c, 8192, ropeDefaults{theta: 10000})
		// The factors below move through linear layers without a bias only.
		k.never("attention_bias", "mlp_bias")
		k.irrelevant("num_logits_to_keep", "attn_layer_indices", "mamba_use_mlp", "mlp_expansion_factor")
		inner := k.size("mamba_expand", 2) * c.HiddenSize
		if !k.isNull("mamba_d_ssm") {
			inner = k.size("mamba_d_ssm", 1024)
		}
		k.irrelevant("mamba_d_ssm")
		k.mamba(c, inner)
		c.Mamba.OutBias = k.boolean("projectors_bias", false)
		c.Mamba.Norm, c.Mamba.NormFirst = k.boolean("mamba_rms_norm", false), k.boolean("mamba_norm_before_gate", true)
		for i := range c.Layers {
			c.Layers[i].Mixer, c.Layers[i].Beside = MambaMixer, true
		}
		k.falconFactors(c)
	},
})

// falconFactors reads the factors of Falcon-H1. Factors of a linear layer's inputs become factors
// of what follows.
func (k *keys) falconFactors(c *ForwardConfig) {
	list := func(key string, n int) []float64 {
		factors := make([]float64, n)
		for i := range factors {
			factors[i] = 1
		}
		if factors = read(k, key, factors, "is not a list of numbers"); len(factors) != n {
			k.fail(key, "has %d factors: %d were expected", len(factors), n)
			return make([]float64, n)
		}
		return factors
	}
	c.EmbeddingScale = k.positive("embedding_multiplier", 1)
	c.LogitScale = k.positive("lm_head_multiplier", 1)
	in := k.positive("attention_in_multiplier", 1)
	c.AttentionScale *= float64(float64(in*in) * k.positive("key_multiplier", 1))
	c.Outputs.Attention = float64(in * k.positive("attention_out_multiplier", 1))
	c.Outputs.Mixer = k.positive("ssm_out_multiplier", 1)
	gates := list("mlp_multipliers", 2)
	c.GateSlope, c.Outputs.FeedForward = gates[0], float64(gates[0]*gates[1])
	in = k.positive("ssm_in_multiplier", 1)
	for i, f := range list("ssm_multipliers", 5) {
		c.Mamba.Factors[i] = float64(f * in)
	}
}
