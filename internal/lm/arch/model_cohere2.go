package arch

var _ = register("cohere2", Facts{
	Title: "Command R7B, A", Class: "Cohere2ForCausalLM", tied: true,
	Layer:    cohereLayer,
	LlamaCpp: &LlamaCpp{Name: "cohere2", Windows: UsedWindow, Period: 4, NoRopeStep: 4, Tied: true, LogitScale: true, Config: cohereMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCohere(c)
		k.always("use_gated_activation", "use_parallel_block")
		only(k, "position_embedding_type", "rope_gptj", "is not a string")
		only(k, "order_of_interleaved_layers", "local_attn_first", "is not a string")
		only(k, "rotary_pct", 1.0, "is not a number")
		k.irrelevant("use_embedding_sharing", "use_parallel_embedding", "layer_switch")
		period := k.size("sliding_window_pattern", 4)
		k.slidingLayers(c, k.window(4096), func(i int) bool { return (i+1)%max(1, period) != 0 })
		for i := range c.Layers {
			if c.Layers[i].Window == 0 {
				c.Layers[i].Rope = -1
			}
		}
	},
})
