package arch

import (
	"fmt"
	"maps"
)

var _ = register("qwen3_next", Facts{
	Title: "Qwen3-Next", Class: "Qwen3NextForCausalLM",
	Layer: join(qwen35Norms, separateAttention, queryKeyNorms, []Naming{
		{DeltaQKVZ, "linear_attn.in_proj_qkvz", "ssm_in"},
		{DeltaBA, "linear_attn.in_proj_ba", "ssm_ba"},
	}, deltaNets, separateMLP, separateExperts, qwenShared),
	LlamaCpp: &LlamaCpp{Name: "qwen3next", PartialRope: true, Check: checkDeltaNets, Config: qwenMixtureMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 16, 2, 256, 1e-6)
		k.positions(c, 32768, ropeDefaults{theta: 10000, part: 0.25})
		k.never("attention_bias")
		k.deltaNet(c)
		k.irrelevant("num_nextn_predict_layers", "use_sliding_window")
		k.qwenExperts(c, 512, 10, 512, 512, true)
	},
})

// qwenMixtureMetadata returns the keys of delta nets and of mixtures in Qwen's way.
func qwenMixtureMetadata(m Metadata) map[string]any {
	config := deltaNetMetadata(m)
	maps.Copy(config, qwenExpertMetadata(m))
	return config
}

func qwenExpertMetadata(m Metadata) map[string]any {
	return map[string]any{
		"hidden_act": "silu", "norm_topk_prob": true, "decoder_sparse_step": 1,
		"num_experts": m.Count("expert_count", -1), "num_experts_per_tok": m.Count("expert_used_count", -1),
		"moe_intermediate_size": m.Count("expert_feed_forward_length", -1), "shared_expert_intermediate_size": m.Count("expert_shared_feed_forward_length", -1),
	}
}

func deltaNetMetadata(m Metadata) map[string]any {
	heads := m.Count("ssm.time_step_rank", -1)
	return map[string]any{
		"full_attention_interval": m.Count("full_attention_interval", 4), "linear_conv_kernel_dim": m.Count("ssm.conv_kernel", -1),
		"linear_num_key_heads": m.Count("ssm.group_count", -1), "linear_num_value_heads": heads,
		"linear_key_head_dim": m.Count("ssm.state_size", -1), "linear_value_head_dim": m.Count("ssm.inner_size", -1) / max(1, heads),
	}
}

// checkDeltaNets refuses delta nets that llama.cpp's keys do not describe.
func checkDeltaNets(c *ForwardConfig) string {
	if d := c.DeltaNet; d.KeyDim != d.ValueDim {
		return fmt.Sprintf("heads of keys and of values of different sizes, %d and %d", d.KeyDim, d.ValueDim)
	}
	if period := c.AttentionPeriod(); period == 0 {
		return "attention in other layers than each n-th (layer_types)"
	}
	return ""
}
