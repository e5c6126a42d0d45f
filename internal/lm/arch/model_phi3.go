package arch

var _ = register("phi3", Facts{
	Title: "Phi-3", Class: "Phi3ForCausalLM",
	Layer: join(preNorms, phi3Attention, fusedMLP),
	LlamaCpp: &LlamaCpp{Name: "phi3", Square: true, RopeFactors: []string{"longrope"}, Factors: true, Windows: WrittenWindow, PartialRope: true, OuterContext: true, Config: func(m Metadata) map[string]any {
		config := windowMetadata(m)
		config["hidden_act"] = "silu"
		config["original_max_position_embeddings"] = m.Count("rope.scaling.original_context_length", m.Count("context_length", -1))
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 0, 0, 0, 1e-5)
		k.never("attention_bias", "mlp_bias", "lm_head_bias")
		only(k, "full_attn_mod", 1, "is not an integer")
		only(k, "interpolate_factor", 1, "is not an integer")
		k.positions(c, 4096, ropeDefaults{theta: 10000, part: 1, originalPositions: k.size("original_max_position_embeddings", 4096)})
		c.windows(k.window(0))
	},
})

var phi3Attention = []Naming{
	{FusedQKV, "self_attn.qkv_proj", "attn_qkv"},
	{Output, "self_attn.o_proj", "attn_output"},
}

// windowMetadata has the window that llama.cpp ignores.
func windowMetadata(m Metadata) map[string]any {
	if w := m.Count("attention.sliding_window", 0); w != 0 {
		return map[string]any{"sliding_window": w}
	}
	return map[string]any{"sliding_window": nil}
}
