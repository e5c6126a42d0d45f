package arch

var _ = register("ministral", Facts{
	Title: "Ministral", Class: "MinistralForCausalLM",
	Layer:    join(preNorms, separateAttention, separateMLP),
	LlamaCpp: llamaLlamaCpp,
	read: func(k *keys, c *ForwardConfig) {
		window := k.readMistral(c, 32)
		k.slidingLayers(c, window, func(int) bool { return window != 0 })
	},
})
