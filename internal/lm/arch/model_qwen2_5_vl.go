package arch

var _ = register("qwen2_5_vl_text", Facts{
	Title: "Qwen2.5-VL (text)", Class: "Qwen2_5_VLForConditionalGeneration",
	Layer:    join(preNorms, separateAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "qwen2vl", Square: true, Bias: QKVBias, Config: qwenMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 64, 8, 0, 1e-5)
		k.positions(c, 32768, ropeDefaults{theta: 1e6, sections: []int{16, 24, 24}})
		c.AttentionBias = QKVBias
		k.qwenWindows(c)
	},
})

var _ = registerMultimodal("qwen2_5_vl", nesting{class: "Qwen2_5_VLForConditionalGeneration", text: "qwen2_5_vl_text", irrelevant: qwenImages, flat: true})

var qwenImages = []string{
	"vision_config", "text_config", "image_token_id", "video_token_id", "vision_token_id", "vision_start_token_id", "vision_end_token_id",
}
