package arch

var _ = register("cohere2", Facts{
	Title: "Command R7B, A", Class: "Cohere2ForCausalLM", tied: true,
	Layer: join([]Naming{{InputNorm, "input_layernorm", "attn_norm"}}, separateAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "cohere2", Windows: UsedWindow, Period: 4, NoRopeStep: 4, Tied: true, LogitScale: true, Config: func(m Metadata) map[string]any {
		return map[string]any{"hidden_act": "silu", "logit_scale": m.Positive("logit_scale", 0), "layer_norm_eps": m.Positive("attention.layer_norm_epsilon", 0)}
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 64, 0, 0, 1e-5)
		c.NormEps = k.positive("layer_norm_eps", 1e-5)
		k.positions(c, 8192, ropeDefaults{theta: 10000})
		c.Ropes[0].Neighbours = true
		k.attentionBias(c)
		k.never("use_qk_norm")
		k.always("use_gated_activation", "use_parallel_block")
		only(k, "position_embedding_type", "rope_gptj", "is not a string")
		only(k, "order_of_interleaved_layers", "local_attn_first", "is not a string")
		only(k, "rotary_pct", 1.0, "is not a number")
		k.irrelevant("use_embedding_sharing", "use_parallel_embedding", "layer_switch")
		c.LayerNorm, c.Parallel = true, true
		c.LogitScale = k.positive("logit_scale", 0.0625)
		period := k.size("sliding_window_pattern", 4)
		k.slidingLayers(c, k.window(4096), func(i int) bool { return (i+1)%max(1, period) != 0 })
		for i := range c.Layers {
			if c.Layers[i].Window == 0 {
				c.Layers[i].Rope = -1
			}
		}
	},
})
