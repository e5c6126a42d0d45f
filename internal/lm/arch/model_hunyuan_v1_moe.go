package arch

import (
	"fmt"
	"slices"
)

var _ = register("hunyuan_v1_moe", Facts{
	Title: "Hunyuan (mixture)", Class: "HunYuanMoEV1ForCausalLM",
	Layer: join(preNorms, separateAttention, hunyuanNorms, []Naming{{Router, "mlp.gate.wg", "ffn_gate_inp"}},
		renamed(sharedExperts, "shared_experts", "shared_mlp"), separateExperts[1:]),
	LlamaCpp: &LlamaCpp{Name: "hunyuan-moe", Config: func(m Metadata) map[string]any {
		return map[string]any{
			"hidden_act":  "silu",
			"num_experts": m.Count("expert_count", -1), "moe_topk": m.Count("expert_used_count", -1),
			"num_shared_expert": max(1, m.Count("expert_shared_feed_forward_length", -1)/max(1, m.Count("expert_feed_forward_length", -1))),
		}
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readHunyuan(c)
		k.always("use_mixed_mlp_moe")
		k.irrelevant("capacity_factor", "moe_drop_tokens", "moe_random_routing_dropped_token", "moe_layer_num_skipped",
			"num_experts_per_tok", "routed_scaling_factor", "norm_topk_prob", "group_limited_greedy")
		c.Experts = &ExpertConfig{Count: k.each("num_experts", 1, len(c.Layers)), PerToken: k.each("moe_topk", 1, len(c.Layers)), Intermediate: c.Intermediate, Normalize: true}
		if v := k.each("moe_intermediate_size", c.Intermediate, len(c.Layers)); v != c.Intermediate {
			k.fail("moe_intermediate_size", "is %d: intermediate_size, %d, was expected", v, c.Intermediate)
		}
		c.Experts.Shared = c.Intermediate * k.each("num_shared_expert", 1, len(c.Layers))
		c.expertsFrom(0)
	},
})

// each reads an integer, or a list of n equal ones.
func (k *keys) each(key string, absent, n int) int {
	if raw := k.keys[key]; len(raw) == 0 || raw[0] != '[' {
		return k.size(key, absent)
	}
	list := read(k, key, []int(nil), "is not a list of integers")
	if len(list) != n || len(slices.Compact(list)) != 1 || list[0] < 1 {
		k.fail(key, "is %s: a positive integer that is the same in all %d layers was expected", fmt.Sprint(list), n)
		return 1
	}
	return list[0]
}
