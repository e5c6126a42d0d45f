package arch

import (
	"fmt"
	"slices"
)

var _ = register("llama4_text", Facts{
	Title: "Llama 4 (text)", Class: "Llama4ForCausalLM", inOut: true,
	Layer: join(preNorms, separateAttention, feedForward, []Naming{
		{Router, "feed_forward.router", "ffn_gate_inp"},
		{GateUpExperts, "feed_forward.experts.gate_up_proj", ""},
		{DownExperts, "feed_forward.experts.down_proj", "ffn_down_exps"},
	}, renamed(sharedExperts, "mlp.shared_experts", "feed_forward.shared_expert")),
	LlamaCpp: &LlamaCpp{
		Name: "llama4", RopeFactors: []string{"llama3"}, NoRopeStep: 4,
		Mixture: LlamaCppMixture{Weights: PlainWeights, Sigmoid: true, Steps: true},
		Check:   checkLlama4, Config: func(m Metadata) map[string]any {
			return map[string]any{
				"hidden_act": "silu", "intermediate_size": m.Count("expert_feed_forward_length", -1), "intermediate_size_mlp": m.Count("feed_forward_length", -1),
				"num_local_experts": m.Count("expert_count", -1), "num_experts_per_tok": m.Count("expert_used_count", -1),
				"interleave_moe_layer_step": m.Count("interleave_moe_layer_step", 1), "use_qk_norm": m.Count("expert_count", 0) != 128,
				"attention_chunk_size": llama4Chunk, "floor_scale": llama4Chunk, "attn_scale": 0.1, "attn_temperature_tuning": true,
			}
		},
	},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 40, 8, 128, 1e-5)
		k.positions(c, 4096*32, ropeDefaults{theta: 500000})
		c.Ropes[0].Neighbours = true
		k.attentionBias(c)
		k.never("for_llm_compressor")
		k.irrelevant("router_jitter_noise")
		if k.boolean("use_qk_norm", true) {
			c.QKNorm = UnitNorms
		}
		c.Experts = &ExpertConfig{
			Count: k.size("num_local_experts", 16), PerToken: k.size("num_experts_per_tok", 1), Intermediate: c.Intermediate, Shared: c.Intermediate,
			Sigmoid: true, ScaleInputs: true,
		}
		c.Intermediate = k.size("intermediate_size_mlp", 16384)
		k.llama4Layers(c)
		c.TemperatureStep = k.size("floor_scale", 8192)
		// Published files have 4 for true.
		if raw := string(k.keys["attn_temperature_tuning"]); raw == "4" || k.boolean("attn_temperature_tuning", true) {
			c.Temperature = k.positive("attn_scale", 0.1)
		}
		k.irrelevant("attn_temperature_tuning", "attn_scale")
	},
})

var _ = registerMultimodal("llama4", nesting{class: "Llama4ForConditionalGeneration", text: "llama4_text", irrelevant: []string{
	"vision_config", "text_config", "image_token_index", "boi_token_index", "eoi_token_index"}})

// llama4Chunk is the number of tokens of a chunk, and between two temperatures, in llama.cpp.
const llama4Chunk = 8192

// checkLlama4 refuses what llama.cpp has no keys for.
func checkLlama4(c *ForwardConfig) string {
	switch chunks := func(l LayerConfig) bool { return l.Chunk != llama4Chunk && l.Rope >= 0 || l.Chunk != 0 && l.Rope < 0 }; {
	case c.TemperatureStep != llama4Chunk || c.Temperature != 0.1:
		return "attention temperatures other than 0.1 each 8192 tokens (attn_temperature_tuning, attn_scale, floor_scale)"
	case c.Experts.Count == 128 != (c.QKNorm == NoQKNorm):
		return fmt.Sprintf("use_qk_norm %v with %d experts: only models of 128 experts have no norms", c.QKNorm != NoQKNorm, c.Experts.Count)
	case slices.ContainsFunc(c.Layers, chunks):
		return "chunks of other than 8192 tokens (attention_chunk_size), or in layers without a rope"
	}
	return ""
}

// llama4Layers reads which layers have a rope, chunks of tokens and experts.
func (k *keys) llama4Layers(c *ForwardConfig) {
	chunk, period, step := k.size("attention_chunk_size", 8192), k.size("no_rope_layer_interval", 4), k.size("interleave_moe_layer_step", 1)
	ropes := read(k, "no_rope_layers", []int(nil), "is not a list of integers")
	mixtures := read(k, "moe_layers", []int(nil), "is not a list of integers")
	if len(ropes) != 0 && len(ropes) != len(c.Layers) {
		k.fail("no_rope_layers", "has %d entries for %d layers", len(ropes), len(c.Layers))
		return
	}
	rope := func(i int) bool {
		if len(ropes) != 0 {
			return ropes[i] != 0
		}
		return (i+1)%max(1, period) != 0
	}
	k.layerTypes(c, rope, func(l *LayerConfig) { l.Chunk = chunk }, "chunked_attention")
	for i := range c.Layers {
		l := &c.Layers[i]
		if l.Experts = (i+1)%max(1, step) == 0; mixtures != nil {
			l.Experts = slices.Contains(mixtures, i)
		}
		if !rope(i) {
			l.Rope = -1
		}
	}
}
