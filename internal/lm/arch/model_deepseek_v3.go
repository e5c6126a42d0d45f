package arch

import (
	"fmt"
	"maps"
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
)

var _ = register("deepseek_v3", Facts{
	Title: "DeepSeek-V3, R1", Class: "DeepseekV3ForCausalLM",
	Layer:    join(preNorms, latentAttention, deepseekMixtures),
	LlamaCpp: deepseekLlamaCpp,
	read: func(k *keys, c *ForwardConfig) {
		k.readLatent(c, 128, 4096, 1536)
		if !k.boolean("rope_interleave", true) {
			c.Ropes[0].Neighbours = false
		}
		k.sigmoidExperts(c, 256, 8, 2048, 3)
	},
})

// deepseekMixtures are also GLM's.
var deepseekMixtures = join(separateMLP, separateExperts, sharedExperts, []Naming{{RouterCorrection, "mlp.gate.e_score_correction_bias", "exp_probs_b.bias"}})

// deepseekLlamaCpp is also GLM-4.7-Flash's.
var deepseekLlamaCpp = &LlamaCpp{
	Name: "deepseek2", Mixture: LlamaCppMixture{Weights: WeightKeys, Sigmoid: true, Dense: true, Groups: true},
	Check: func(c *ForwardConfig) string {
		if !c.Ropes[0].Neighbours {
			return "ropes that rotate the dimensions i and i + n/2 together (rope_interleave false)"
		}
		return checkLatents(c)
	},
	Config: deepseekMetadata,
}

// checkLatents refuses what llama.cpp does not read of yarn: its factor of sines and cosines is 1,
// and the factor of queries and keys follows from mscale_all_dim. llama.cpp recognizes models whose
// queries have no latent by the number of layers.
func checkLatents(c *ForwardConfig) string {
	if n := len(c.Layers); c.Latent.QueryRank == 0 && n != 26 && n != 27 && (n != 48 || c.VocabSize != 128256) {
		return fmt.Sprintf("queries without a latent (q_lora_rank null) in a model of %d layers, only in those of 26 and 27", n)
	}
	if r := &c.Ropes[0]; r.Type == "yarn" && (r.ScoreFactor == 0 || r.AttentionFactor != 1) {
		return "yarn with other numbers for mscale and mscale_all_dim, or without mscale_all_dim"
	}
	return ""
}

// deepseekMetadata returns the keys of attention with latents and of mixtures in DeepSeek's way.
func deepseekMetadata(m Metadata) map[string]any {
	config := latentMetadata(m)
	maps.Copy(config, deepseekExpertMetadata(m))
	return config
}

func latentMetadata(m Metadata) map[string]any {
	rope := m.Count("rope.dimension_count", -1)
	config := map[string]any{
		"hidden_act": "silu", "kv_lora_rank": m.Count("attention.kv_lora_rank", -1), "q_lora_rank": nil,
		"qk_rope_head_dim": rope, "num_key_value_heads": m.Count("attention.head_count", -1),
		// Files with attn_k_b have the sizes of latents under the other keys.
		"qk_nope_head_dim": m.Count("attention.key_length_mla", m.Count("attention.key_length", 0)) - rope,
		"v_head_dim":       m.Count("attention.value_length_mla", m.Count("attention.value_length", 0)),
	}
	if n := m.Count("attention.q_lora_rank", 0); n > 0 {
		config["q_lora_rank"] = n
	}
	return config
}

// readLatent reads the keys of attention with latents in DeepSeek's way, and what its models share.
func (k *keys) readLatent(c *ForwardConfig, heads, maxPositions, queryRank int) {
	k.readCommon(c, heads, 0, 64, 1e-6)
	k.never("attention_bias", "mlp_bias")
	k.irrelevant("ep_size", "aux_loss_alpha", "seq_aux", "qk_head_dim")
	k.predictors(c)
	only(k, "moe_layer_freq", 1, "is not an integer")
	a := &LatentConfig{KeyRank: k.size("kv_lora_rank", 512), Nope: k.size("qk_nope_head_dim", 128), Rope: k.size("qk_rope_head_dim", 64), Value: k.size("v_head_dim", 128)}
	if !k.isNull("q_lora_rank") {
		a.QueryRank = k.size("q_lora_rank", queryRank)
	} else {
		k.irrelevant("q_lora_rank")
	}
	c.Latent, c.HeadDim, c.RopeStart = a, a.Nope+a.Rope, a.Nope
	c.AttentionScale = 1 / math.Sqrt(float64(c.HeadDim))
	k.positions(c, maxPositions, ropeDefaults{theta: 10000, dims: a.Rope})
	c.Ropes[0].Neighbours = true
	// Twice: of queries and of keys.
	if r := &c.Ropes[0]; r.Type == "yarn" && r.Factor > 1 && r.ScoreFactor != 0 {
		m := float64(float64(0.1*r.ScoreFactor)*detmath.Log(r.Factor)) + 1
		c.AttentionScale *= float64(m * m)
	}
}
