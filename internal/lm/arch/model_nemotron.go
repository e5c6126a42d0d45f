package arch

var _ = register("nemotron", Facts{
	Title: "Nemotron, Minitron", Class: "NemotronForCausalLM",
	Layer: join(preNorms, separateAttention, plainMLP),
	LlamaCpp: &LlamaCpp{Name: "nemotron", Square: true, Bias: AllBias, MLPBias: true, PartialRope: true, Check: untied, Config: func(m Metadata) map[string]any {
		config := plainMetadata(m)
		config["norm_eps"] = m.Positive("attention.layer_norm_epsilon", 0)
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readPlain(c, 48)
		c.NormEps = k.positive("norm_eps", 1e-5)
		k.positions(c, 4096, ropeDefaults{theta: 10000, part: 0.5})
		c.LayerNorm, c.NormBias, c.PlusOne = true, true, true
	},
})

// untied refuses a tied lm_head where llama.cpp reads no embedding in its place.
func untied(c *ForwardConfig) string {
	if c.Tied {
		return "an lm_head that is the embedding (tie_word_embeddings)"
	}
	return ""
}
