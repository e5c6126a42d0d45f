package arch

var _ = register("seed_oss", Facts{
	Title: "Seed-OSS", Class: "SeedOssForCausalLM",
	Layer:    join(qwen35Norms, separateAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "seed_oss", Bias: QKVBias, Config: siluBiasMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 80, 8, 128, 1e-6)
		k.positions(c, 524288, ropeDefaults{theta: 10000})
		k.irrelevant("residual_dropout")
		c.MLPBias = k.boolean("mlp_bias", false)
		inputs, output := k.boolean("attention_bias", true), k.boolean("attention_out_bias", false)
		if inputs {
			c.AttentionBias = QKVBias
		}
		if inputs && output {
			c.AttentionBias = AllBias
		} else if output {
			k.fail("attention_out_bias", "is true, but attention_bias is false: this forward pass knows a bias of the output only with biases of q, k and v")
		}
	},
})
