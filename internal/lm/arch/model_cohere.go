package arch

var _ = register("cohere", Facts{
	Title: "Command R", Class: "CohereForCausalLM", tied: true,
	Layer: cohereLayer,
	LlamaCpp: &LlamaCpp{Name: "command-r", Square: true, Tied: true, LogitScale: true, Config: cohereMetadata, Check: func(c *ForwardConfig) string {
		if len(c.Layers) >= 64 {
			return "64 layers and more without norms of queries and keys (use_qk_norm false)"
		}
		return ""
	}},
	read: func(k *keys, c *ForwardConfig) { k.readCohere(c) },
})

var cohereLayer = join([]Naming{{InputNorm, "input_layernorm", "attn_norm"}}, separateAttention, separateMLP)

func cohereMetadata(m Metadata) map[string]any {
	return map[string]any{"hidden_act": "silu", "logit_scale": m.Positive("logit_scale", 0), "layer_norm_eps": m.Positive("attention.layer_norm_epsilon", 0)}
}

func (k *keys) readCohere(c *ForwardConfig) {
	k.readCommon(c, 64, 0, 0, 1e-5)
	c.NormEps = k.positive("layer_norm_eps", 1e-5)
	if k.has("model_max_length") { // the context of published files
		k.keys["max_position_embeddings"] = k.keys["model_max_length"]
	}
	k.positions(c, 8192, ropeDefaults{theta: 10000})
	c.Ropes[0].Neighbours = true
	k.attentionBias(c)
	k.never("use_qk_norm")
	c.LayerNorm, c.Parallel = true, true
	c.LogitScale = k.positive("logit_scale", 0.0625)
}
