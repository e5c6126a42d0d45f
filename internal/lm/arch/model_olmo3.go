package arch

var _ = register("olmo3", Facts{
	Title: "OLMo 3", Class: "Olmo3ForCausalLM",
	Layer:    join(postNorms, separateAttention, queryKeyNorms, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "olmo2", Square: true, Windows: OptionalWindow, Period: 4, LocalRope: true, Config: siluMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 0, 0, 1e-5)
		k.attentionBias(c)
		c.QKNorm = WholeNorms
		k.slidingLayers(c, k.window(4096), func(i int) bool { return (i+1)%4 != 0 })
		// Only layers that see all tokens have a scaled rope.
		d := ropeDefaults{theta: 500000, thetaKey: "rope_theta"}
		k.layerPositions(c, 2048, d, d)
	},
})
