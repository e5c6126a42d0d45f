package arch

var _ = register("glm", Facts{
	Title: "GLM-4-9B", Class: "GlmForCausalLM",
	Layer:    join(preNorms, separateAttention, fusedMLP),
	LlamaCpp: &LlamaCpp{Name: "chatglm", Square: true, Bias: QKVBias, PartialRope: true, Config: siluBiasMetadata},
	read:     readGlm,
})

// readGlm is also GLM-4's.
func readGlm(k *keys, c *ForwardConfig) {
	k.readCommon(c, 32, 2, 128, 0.00000015625)
	k.positions(c, 131072, ropeDefaults{theta: 10000, part: 0.5})
	c.Ropes[0].Neighbours = true
	k.biases(c, "attention_bias", true, QKVBias)
}
