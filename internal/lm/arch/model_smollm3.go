package arch

var _ = register("smollm3", Facts{
	Title: "SmolLM3", Class: "SmolLM3ForCausalLM", tied: true,
	Layer: join(preNorms, separateAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "smollm3", Permuted: true, NoRopeStep: 4, Bias: QKVBias, Config: func(m Metadata) map[string]any {
		config, turns := qwenMetadata(m), make([]int, m.Count("block_count", -1))
		for i := range turns {
			turns[i] = min(1, (i+1)%4)
		}
		config["no_rope_layers"] = turns
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 16, 4, 0, 1e-6)
		k.positions(c, 32768, ropeDefaults{theta: 2e6})
		k.attentionBias(c)
		c.MLPBias = k.boolean("mlp_bias", false)
		// An entry of no_rope_layers is 1 if the layer has a rope.
		interval := k.size("no_rope_layer_interval", 4)
		turns := byLayer(k, c, "no_rope_layers", []int(nil), "is not a list of integers")
		for i := range c.Layers {
			if turns == nil && (i+1)%max(1, interval) == 0 || turns != nil && turns[i] == 0 {
				c.Layers[i].Rope = -1
			}
		}
		window := k.window(0)
		if !k.boolean("use_sliding_window", false) {
			window = 0
		}
		k.irrelevant("max_window_layers")
		k.slidingLayers(c, window, func(i int) bool { return window != 0 && c.Layers[i].Rope < 0 })
	},
})
