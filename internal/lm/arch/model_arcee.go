package arch

var _ = register("arcee", Facts{
	Title: "Arcee", Class: "ArceeForCausalLM",
	Layer:    join(preNorms, separateAttention, plainMLP),
	LlamaCpp: &LlamaCpp{Name: "arcee", Permuted: true, RopeFactors: []string{"llama3"}, Config: plainMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readPlain(c, 32)
		k.positions(c, 4096, ropeDefaults{theta: 10000})
	},
})

// plainMLP is a network without a gate, also Nemotron's.
var plainMLP = separateMLP[1:]

func (k *keys) readPlain(c *ForwardConfig, heads int) {
	k.readHeads(c, heads, 0, 0, 1e-5)
	c.Intermediate = k.size("intermediate_size", 0)
	c.Activation = SquaredRelu
	only(k, "hidden_act", SquaredRelu, "is not a string")
	k.attentionBias(c)
	c.MLPBias = k.boolean("mlp_bias", false)
}

func plainMetadata(m Metadata) map[string]any {
	return map[string]any{"hidden_act": SquaredRelu, "attention_bias": m.HasTensor("blk.0.attn_q.bias"), "mlp_bias": m.HasTensor("blk.0.ffn_up.bias")}
}
