package arch

var _ = register("llama", Facts{
	Title: "Llama", Class: "LlamaForCausalLM",
	Layer:    join(preNorms, separateAttention, separateMLP),
	LlamaCpp: llamaLlamaCpp,
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 0, 0, 0, 1e-6)
		k.positions(c, 2048, ropeDefaults{theta: 10000})
		k.attentionBias(c)
		c.MLPBias = k.boolean("mlp_bias", false)
	},
})

// llamaLlamaCpp is also Mistral's: llama.cpp has one architecture for both.
var llamaLlamaCpp = &LlamaCpp{Name: "llama", Permuted: true, Bias: AllBias, MLPBias: true, RopeFactors: []string{"llama3", "longrope"}, Config: llamaMetadata}

func llamaMetadata(m Metadata) map[string]any {
	config := siluBiasMetadata(m)
	config["mlp_bias"] = m.HasTensor("blk.0.ffn_gate.bias")
	return config
}
