package arch

import "math"

var _ = register("minicpm3", Facts{
	Title: "MiniCPM3", Class: "MiniCPM3ForCausalLM",
	Layer: join(preNorms, latentAttention, separateMLP),
	read:  readMiniCPM3,
})

func readMiniCPM3(k *keys, c *ForwardConfig) {
	width := k.size("v_head_dim", max(1, k.size("hidden_size", 2560)/max(1, k.size("num_attention_heads", 40))))
	k.readLatent(c, 40, 32768, 768)
	c.NormEps = k.positive("rms_norm_eps", 1e-5)
	c.Latent.Value = width
	c.Ropes[0].Neighbours = false
	c.EmbeddingScale = k.positive("scale_emb", 12)
	c.ResidualScale = k.positive("scale_depth", 1.4) / math.Sqrt(float64(max(1, len(c.Layers))))
	c.LogitScale = float64(k.size("dim_model_base", 256)) / float64(max(1, c.HiddenSize))
}
