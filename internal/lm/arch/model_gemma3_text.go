package arch

var _ = register("gemma3_text", Facts{
	Title: "Gemma 3 (text)", Class: "Gemma3ForCausalLM", tied: true,
	Layer: join(allNorms, separateAttention, queryKeyNorms, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "gemma3", Windows: OptionalWindow, Period: 6, WideLayers: 62, Config: func(m Metadata) map[string]any {
		return map[string]any{
			"hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": nil, "final_logit_softcapping": nil,
			"rope_local_base_freq": m.Positive("rope.freq_base_swa", 10000),
		}
	}},
	vocab: 262208,
	read: func(k *keys, c *ForwardConfig) {
		k.readGemma(c)
		c.QKNorm = HeadNorms
		if k.has("attn_logit_softcapping") {
			k.fail("attn_logit_softcapping", "is %s: Gemma 3 has none", k.keys["attn_logit_softcapping"])
		}
		c.LogitSoftcap = k.softcap("final_logit_softcapping", 0)
		pattern := k.size("sliding_window_pattern", k.size("_sliding_window_pattern", 6))
		k.slidingLayers(c, k.window(4096), func(i int) bool { return (i+1)%max(1, pattern) != 0 })
		// The local rope is never scaled.
		k.layerPositions(c, 131072, ropeDefaults{theta: 1e6, thetaKey: "rope_theta"}, ropeDefaults{theta: 10000, thetaKey: "rope_local_base_freq"})
	},
})

var _ = registerMultimodal("gemma3", nesting{class: "Gemma3ForConditionalGeneration", text: "gemma3_text", irrelevant: []string{
	"vision_config", "text_config", "boi_token_index", "eoi_token_index", "image_token_index", "mm_tokens_per_image"}})
