package arch

var _ = register("gemma2", Facts{
	Title: "Gemma 2", Class: "Gemma2ForCausalLM", tied: true,
	Layer: join(allNorms, separateAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "gemma2", Windows: UsedWindow, Period: 2, Window: 4096, Caps: true, WideLayers: 46, Tied: true, Config: func(m Metadata) map[string]any {
		return map[string]any{
			"hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": m.Positive("attn_logit_softcapping", 50),
			"final_logit_softcapping": m.Positive("final_logit_softcapping", 30),
		}
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readGemma(c)
		k.positions(c, 8192, ropeDefaults{theta: 10000})
		c.AttentionSoftcap = k.softcap("attn_logit_softcapping", 50)
		c.LogitSoftcap = k.softcap("final_logit_softcapping", 30)
		k.slidingLayers(c, k.window(4096), func(i int) bool { return i%2 == 0 })
	},
})
