package arch

import "fmt"

var _ = register("gpt_oss", Facts{
	Title: "gpt-oss", Class: "GptOssForCausalLM", inOut: true,
	Layer: join(qwen35Norms, separateAttention, []Naming{
		{Sinks, "self_attn.sinks", "attn_sinks"},
		{Router, "mlp.router", "ffn_gate_inp"},
		{GateUpExperts, "mlp.experts.gate_up_proj", ""},
		{DownExperts, "mlp.experts.down_proj", "ffn_down_exps"},
	}),
	LlamaCpp: &LlamaCpp{
		Name: "gpt-oss", Bias: AllBias, Windows: UsedWindow, Period: 2, Untruncated: true,
		Change: func(c *ForwardConfig) (difference string) {
			if r := &c.Ropes[0]; r.Type == "yarn" && !r.Truncate {
				r.Truncate, difference = true, "rounds the dimensions between which yarn interpolates, as truncate true: logits differ slightly from Transformers'"
			}
			return difference
		},
		Check: func(c *ForwardConfig) string {
			if c.AttentionBias != AllBias || c.GateLimit != 7 || c.GateSlope != 1.702 {
				return fmt.Sprintf("attention_bias false, and other than swiglu_limit 7 (%v) and swiglu_alpha 1.702 (%v)", c.GateLimit, c.GateSlope)
			}
			return ""
		},
		Config: func(m Metadata) map[string]any {
			config := localExpertsMetadata(m)
			config["attention_bias"], config["intermediate_size"] = m.HasTensor("blk.0.attn_q.bias"), m.Count("expert_feed_forward_length", -1)
			return config
		},
	},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 64, 8, 64, 1e-5)
		k.biases(c, "attention_bias", true, AllBias)
		if !k.has("rope_parameters") && !k.has("rope_scaling") {
			k.fail("rope_scaling", "is missing: a rope_scaling of type yarn, as published files have it, was expected")
		}
		k.positions(c, 131072, ropeDefaults{theta: 150000})
		k.irrelevant("initial_context_length")
		k.slidingLayers(c, k.window(128), func(i int) bool { return i%2 == 0 })
		c.Activation = ClampedSilu
		c.GateLimit, c.GateSlope = k.positive("swiglu_limit", 7), k.positive("swiglu_alpha", 1.702)
		// The softmax of the chosen experts' logits is the softmax of all logits, divided by its
		// sum.
		e := k.experts(c, "num_local_experts", 128, 4)
		e.Bias, e.Interleaved = true, true
		only(k, "experts_per_token", e.PerToken, "is not an integer")
	},
})
