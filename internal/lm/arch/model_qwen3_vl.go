package arch

var _ = register("qwen3_vl_text", Facts{
	Title: "Qwen3-VL (text)", Class: "Qwen3VLForConditionalGeneration",
	Layer:    join(preNorms, separateAttention, queryKeyNorms, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "qwen3vl", Config: siluMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 32, 128, 1e-6)
		k.positions(c, 128000, ropeDefaults{theta: 500000, sections: []int{24, 20, 20}})
		k.attentionBias(c)
		c.QKNorm = HeadNorms
	},
})

var _ = registerMultimodal("qwen3_vl", nesting{class: "Qwen3VLForConditionalGeneration", text: "qwen3_vl_text", irrelevant: qwenImages})
