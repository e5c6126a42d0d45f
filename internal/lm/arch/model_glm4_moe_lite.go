package arch

var _ = register("glm4_moe_lite", Facts{
	Title: "GLM-4.7-Flash", Class: "Glm4MoeLiteForCausalLM",
	Layer:    join(preNorms, latentAttention, deepseekMixtures),
	LlamaCpp: deepseekLlamaCpp,
	read: func(k *keys, c *ForwardConfig) {
		k.readLatent(c, 20, 202752, 768)
		c.NormEps = k.positive("rms_norm_eps", 1e-5)
		k.always("rope_interleave")
		only(k, "partial_rotary_factor", 1.0, "is not a number")
		k.sigmoidExperts(c, 64, 4, 1536, 1)
		types := byLayer(k, c, "mlp_layer_types", []string(nil), "is not a list of strings")
		for i, kind := range types {
			if kind != "dense" && kind != "sparse" {
				k.fail("mlp_layer_types", "has %q: dense and sparse were expected", kind)
			}
			c.Layers[i].Experts = kind == "sparse"
		}
	},
})
