package arch

import "math"

var _ = register("minicpm3", Facts{
	Title: "MiniCPM3", Class: "MiniCPM3ForCausalLM", tied: true,
	Layer: join(preNorms, latentAttention, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "minicpm3", RopeFactors: []string{"longrope"}, Check: func(c *ForwardConfig) string {
		depth := 1.4 / math.Sqrt(float64(max(1, len(c.Layers))))
		switch {
		case c.EmbeddingScale != 12 || math.Abs(c.ResidualScale/depth-1) > 1e-6 || c.LogitScale != 256/float64(c.HiddenSize):
			return "factors other than scale_emb 12, scale_depth 1.4 and dim_model_base 256"
		case c.Latent.QueryRank == 0:
			return "queries without a latent (q_lora_rank null)"
		case c.Ropes[0].Type != "default" && c.Ropes[0].Type != "longrope":
			return "rope_type " + c.Ropes[0].Type
		}
		return ""
	}, Config: func(m Metadata) map[string]any {
		config := latentMetadata(m)
		config["scale_emb"], config["scale_depth"], config["dim_model_base"] = 12, 1.4, 256
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		width := k.size("v_head_dim", max(1, k.size("hidden_size", 2560)/max(1, k.size("num_attention_heads", 40))))
		k.readLatent(c, 40, 32768, 768)
		c.NormEps = k.positive("rms_norm_eps", 1e-5)
		c.Latent.Value = width
		c.Ropes[0].Neighbours = false
		c.EmbeddingScale = k.positive("scale_emb", 12)
		c.ResidualScale = k.positive("scale_depth", 1.4) / math.Sqrt(float64(max(1, len(c.Layers))))
		c.LogitScale = float64(k.size("dim_model_base", 256)) / float64(max(1, c.HiddenSize))
	},
})
