package arch

var _ = register("mistral", Facts{
	Title: "Mistral", Class: "MistralForCausalLM",
	Layer:    join(preNorms, separateAttention, separateMLP),
	LlamaCpp: llamaLlamaCpp,
	read:     func(k *keys, c *ForwardConfig) { c.windows(k.readMistral(c, 0)) },
})

// readMistral returns the sliding window.
func (k *keys) readMistral(c *ForwardConfig, heads int) (window int) {
	k.readCommon(c, heads, 8, 0, 1e-6)
	k.positions(c, 4096*32, ropeDefaults{theta: 10000})
	k.never("attention_bias", "mlp_bias")
	return k.window(4096)
}

var _ = registerMultimodal("mistral3", nesting{class: "Mistral3ForConditionalGeneration", text: "mistral", irrelevant: []string{
	"vision_config", "text_config", "image_token_index", "multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size",
	"vision_feature_layer"}})
