package arch

import (
	"encoding/json"
	"maps"
	"math"
	"strconv"
	"strings"
)

var _ = register("nemotron_h", Facts{
	Title: "Nemotron-H, Nemotron 3", Class: "NemotronHForCausalLM", vocab: 131072,
	Layer: join([]Naming{{InputNorm, "norm", "attn_norm"}, {FeedForwardNorm, "norm", "attn_norm"}},
		renamed(separateAttention, "self_attn", "mixer"), renamed(mambaMixers, "mamba", "mixer"), []Naming{
			{Up, "mixer.up_proj", "ffn_up"},
			{Down, "mixer.down_proj", "ffn_down"},
			{Router, "mixer.gate", "ffn_gate_inp"},
			{UpExperts, "mixer.experts.*.up_proj", "ffn_up_exps"},
			{DownExperts, "mixer.experts.*.down_proj", "ffn_down_exps"},
			{RouterCorrection, "mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
			{SharedUp, "mixer.shared_experts.up_proj", "ffn_up_shexp"},
			{SharedDown, "mixer.shared_experts.down_proj", "ffn_down_shexp"},
			{ExpertsIn, "mixer.fc1_latent_proj", "ffn_latent_down"},
			{ExpertsOut, "mixer.fc2_latent_proj", "ffn_latent_up"},
		}),
	Prefix:    Prefix{"backbone.", "backbone.embeddings.weight", "lm_head.weight"},
	FinalNorm: Naming{HF: "norm_f", GGUF: "output_norm"},
	LlamaCpp: &LlamaCpp{
		Name: "nemotron_h", MixtureName: "nemotron_h_moe", NoRopeStep: 1, NormKeys: true, Varied: true, Mixture: LlamaCppMixture{Weights: WeightKeys, Sigmoid: true},
		Check: func(c *ForwardConfig) string { return c.Mamba.checkLlamaCpp() }, Config: nemotronMetadata,
	},
	read: func(k *keys, c *ForwardConfig) {
		layers := k.nemotronLayers()
		k.keys["num_hidden_layers"] = json.RawMessage(strconv.Itoa(len(layers))) // the list decides
		k.readHeads(c, 32, 8, 128, 1e-5)
		c.Intermediate = k.size("intermediate_size", 0)
		c.NormEps = k.positive("layer_norm_epsilon", 1e-5)
		c.MaxPositions = k.size("max_position_embeddings", 4096)
		c.Activation = SquaredRelu
		only(k, "mlp_hidden_act", SquaredRelu, "is not a string")
		only(k, "mamba_hidden_act", "silu", "is not a string")
		k.never("attention_bias", "mamba_proj_bias") // use_bias decides in state spaces
		c.MLPBias = k.boolean("mlp_bias", false)
		bias := k.boolean("use_bias", false)
		c.Mamba = &MambaConfig{
			Kernel: k.size("conv_kernel", 4), Heads: k.size("mamba_num_heads", 128), HeadDim: k.size("mamba_head_dim", 64),
			Groups: k.size("n_groups", 8), State: k.size("ssm_state_size", 128), ConvBias: k.boolean("use_conv_bias", true), InBias: bias, OutBias: bias,
			Least: k.positive("time_step_min", 0.001), Most: math.Inf(1), Norm: true, Factors: [5]float64{1, 1, 1, 1, 1},
		}
		k.deepseekExperts(c, 8, 2, 7688, 0)
		c.Experts.Sigmoid, c.Experts.Shared = true, k.size("moe_shared_expert_intermediate_size", 7688)
		c.Experts.Latent = k.count("moe_latent_size", 0)
		c.Layers = layers
		c.Ropes = []RopeConfig{{Type: "default", Theta: 10000, Dims: c.HeadDim, AttentionFactor: 1}}
		k.predictors(c)
		// Transformers ignores a sliding window, ropes, and all keys about time steps but the
		// least.
		k.irrelevant("chunk_size", "expand", "mamba_ssm_cache_dtype", "norm_eps", "num_logits_to_keep", "partial_rotary_factor", "rope_theta",
			"rescale_prenorm_residual", "residual_in_fp32", "sliding_window", "time_step_floor", "time_step_limit", "time_step_max", "use_mamba_kernels",
			"moe_shared_expert_overlap", "mtp_layers_block_type", "mtp_hybrid_override_pattern")
	},
})

// nemotronLayers reads the kinds of layers, each a single part: of layers_block_type, or of the
// letters in hybrid_override_pattern.
func (k *keys) nemotronLayers() []LayerConfig {
	kinds := read(k, "layers_block_type", []string(nil), "is not a list of strings")
	if kinds = read(k, "layer_types", kinds, "is not a list of strings"); kinds == nil {
		kinds = strings.Split(k.string("hybrid_override_pattern", "ME*-"), "")
	}
	k.irrelevant("hybrid_override_pattern")
	layers := make([]LayerConfig, len(kinds))
	for i, kind := range kinds {
		l := &layers[i]
		l.Rope = -1
		switch kind {
		case "M", "linear_attention", "mamba":
			l.Mixer, l.NoFeedForward = MambaMixer, true
		case "*", "full_attention", "attention":
			l.NoFeedForward = true
		case "-", "mlp":
			l.Mixer = NoMixer
		case "E", "moe":
			l.Mixer, l.Experts = NoMixer, true
		default:
			k.fail("hybrid_override_pattern", "has a layer %q: M, *, - and E are known", kind)
		}
	}
	return layers
}

// nemotronMetadata returns the keys of config.json. llama.cpp tells kinds of layers by heads and
// widths: attention has heads, a state space has neither.
func nemotronMetadata(m Metadata) map[string]any {
	pattern, heads, experts := "", m.List("attention.head_count_kv"), m.Count("expert_count", 0)
	for i, width := range m.List("feed_forward_length") {
		kind := map[bool]string{true: "E", false: "-"}[experts > 0]
		if heads[i] > 0 {
			kind = "*"
		} else if width == 0 {
			kind = "M"
		}
		pattern += kind
	}
	inner := m.Count("ssm.time_step_rank", -1)
	config := map[string]any{
		"hybrid_override_pattern": pattern, "layer_norm_epsilon": m.Positive("attention.layer_norm_epsilon", 0), "conv_kernel": m.Count("ssm.conv_kernel", -1),
		"mamba_num_heads": inner, "mamba_head_dim": m.Count("ssm.inner_size", -1) / max(1, inner), "n_groups": m.Count("ssm.group_count", -1),
		"ssm_state_size": m.Count("ssm.state_size", -1),
	}
	if experts > 0 {
		maps.Copy(config, deepseekExpertMetadata(m))
		config["moe_shared_expert_intermediate_size"], config["n_shared_experts"] = m.Count("expert_shared_feed_forward_length", -1), 1
		if n := m.Count("moe_latent_size", 0); n > 0 { // 0 is a size to Transformers
			config["moe_latent_size"] = n
		}
	}
	return config
}
