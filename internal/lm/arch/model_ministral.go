package arch

var _ = register("ministral", Facts{
	Title: "Ministral", Class: "MinistralForCausalLM",
	Layer:    join(preNorms, separateAttention, separateMLP),
	LlamaCpp: llamaLlamaCpp,
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 8, 0, 1e-6)
		k.positions(c, 4096*32, ropeDefaults{theta: 10000})
		k.never("attention_bias", "mlp_bias")
		window := k.window(4096)
		k.slidingLayers(c, window, func(int) bool { return window != 0 })
	},
})
