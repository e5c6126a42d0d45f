package arch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
)

var _ = register("gemma4_text", Facts{
	Title: "Gemma 4 (text)", Class: "Gemma4ForCausalLM", tied: true,
	Layer: join(allNorms, separateAttention, queryKeyNorms, separateMLP, perLayerInputs, []Naming{
		{LayerScalar, "layer_scalar", "layer_output_scale"},
		// A mixture beside the dense network. The dense network is like a shared expert.
		{Router, "router.proj", "ffn_gate_inp"},
		{RouterScale, "router.scale", "ffn_gate_inp.scale"},
		{ExpertScale, "router.per_expert_scale", "ffn_down_exps.scale"},
		{GateUpExperts, "experts.gate_up_proj", "ffn_gate_up_exps"},
		{DownExperts, "experts.down_proj", "ffn_down_exps"},
		{ExpertsNorm, "pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
		{ExpertsPostNorm, "post_feedforward_layernorm_2", "post_ffw_norm_2"},
		{SharedPostNorm, "post_feedforward_layernorm_1", "post_ffw_norm_1"},
		{SharedGate, "mlp.gate_proj", "ffn_gate"},
		{SharedUp, "mlp.up_proj", "ffn_up"},
		{SharedDown, "mlp.down_proj", "ffn_down"},
	}),
	Outer:    perLayerModel,
	LlamaCpp: &LlamaCpp{Name: "gemma4", Windows: ListedWindow, SharesKeys: true, Varied: true, RopeFactors: []string{"proportional"}, Config: gemma4Metadata},
	vocab:    262144,
	read: func(k *keys, c *ForwardConfig) {
		k.readGemmaUnit(c, 4)
		c.MaxPositions = k.size("max_position_embeddings", 131072)
		c.Intermediate = k.size("intermediate_size", 9216)
		c.LogitSoftcap = k.softcap("final_logit_softcapping", 0)
		only(k, "use_bidirectional_attention", "vision", "is not a string") // of images only
		k.slidingLayers(c, k.window(512), func(i int) bool { return (i+1)%6 != 0 })
		if n := len(c.Layers); n > 0 {
			c.Layers[n-1].Window = 0 // whatever layer_types says
		}
		k.gemma4Heads(c)
		k.borrow(c, 0)
		wide, mixes := k.boolean("use_double_wide_mlp", false), k.boolean("enable_moe_block", false)
		for i := range c.Layers {
			if l := &c.Layers[i]; wide && l.Borrow > 0 {
				l.Intermediate = 2 * c.Intermediate
			}
		}
		if c.PerLayer.Width == 0 {
			c.PerLayer = nil
		} else if c.PerLayer.Vocab < c.VocabSize {
			k.fail("vocab_size_per_layer_input", "is %d: at least vocab_size, %d, was expected", c.PerLayer.Vocab, c.VocabSize)
		}
		if wide && mixes {
			k.fail("use_double_wide_mlp", "is true beside experts: this forward pass knows either of the two")
		} else if !mixes {
			k.irrelevant("num_experts", "top_k_experts", "moe_intermediate_size")
			return
		}
		c.Experts = &ExpertConfig{Count: k.size("num_experts", 0), PerToken: k.size("top_k_experts", 0), Intermediate: k.size("moe_intermediate_size", 0), Shared: c.Intermediate, Normalize: true}
		c.expertsFrom(0)
	},
})

var _ = registerMultimodal("gemma4", nesting{class: "Gemma4ForConditionalGeneration", text: "gemma4_text", irrelevant: gemmaInputs})

// gemma4Heads reads the sizes of heads in layers that see all tokens, and the ropes.
func (k *keys) gemma4Heads(c *ForwardConfig) {
	dims, heads, same := k.size("global_head_dim", 512), k.count("num_global_key_value_heads", 0), k.boolean("attention_k_eq_v", false)
	if !same {
		heads = 0
	}
	own := k.within("per_layer_config") // as Transformers writes it, in place of both
	for i := range c.Layers {
		l := &c.Layers[i]
		if own != nil {
			if in := own.within(strconv.Itoa(i)); in != nil {
				l.HeadDim, l.KVHeads = in.count("head_dim", 0), in.count("num_key_value_heads", 0)
				own.join(in)
			}
		} else if l.Window == 0 {
			l.HeadDim, l.KVHeads = dims, heads
		}
		if l.KeyValues = same && l.Window == 0; l.Window == 0 {
			dims = cmp.Or(l.HeadDim, c.HeadDim)
		}
	}
	k.join(own)
	if !k.has("rope_parameters") {
		k.keys["rope_parameters"] = json.RawMessage(`{"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25}, "sliding_attention": {"rope_type": "default"}}`)
	}
	c.Ropes = k.layerRopes(ropeDefaults{theta: 1e6, dims: dims, maxPositions: c.MaxPositions, proportional: true}, ropeDefaults{theta: 10000, dims: c.HeadDim, maxPositions: c.MaxPositions})
	c.localRopes()
	for i, l := range c.Layers {
		if n := cmp.Or(l.HeadDim, c.HeadDim); n != c.Ropes[l.Rope].Dims {
			k.fail("per_layer_config", "has heads of %d in layer %d: %d was expected, as in the other layers of its kind", n, i, c.Ropes[l.Rope].Dims)
		}
	}
}

func gemma4Metadata(m Metadata) map[string]any {
	heads, widths, windows := m.List("attention.head_count_kv"), m.List("feed_forward_length"), m.List("attention.sliding_window_pattern")
	shared := m.Count("attention.shared_kv_layers", 0)
	config := map[string]any{
		"hidden_activation": "gelu_pytorch_tanh", "head_dim": m.Count("attention.key_length_swa", -1), "global_head_dim": m.Count("attention.key_length", -1),
		"num_kv_shared_layers": shared, "hidden_size_per_layer_input": m.Count("embedding_length_per_layer_input", 0),
		"final_logit_softcapping": m.Positive("final_logit_softcapping", 30), "intermediate_size": widths[0], "use_double_wide_mlp": widths[len(widths)-1] != widths[0],
	}
	for i, n := range heads {
		if windows[i] != 0 {
			config["num_key_value_heads"] = n
		} else if i < len(heads)-shared {
			config["num_global_key_value_heads"], config["attention_k_eq_v"] = n, !m.HasTensor(fmt.Sprintf("blk.%d.attn_v.weight", i))
		}
	}
	if n := m.Count("expert_count", 0); n > 0 {
		config["enable_moe_block"], config["num_experts"], config["top_k_experts"] = true, n, m.Count("expert_used_count", -1)
		config["moe_intermediate_size"] = m.Count("expert_feed_forward_length", -1)
	}
	return config
}
