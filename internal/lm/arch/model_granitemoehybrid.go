package arch

import "math"

var _ = register("granitemoehybrid", Facts{
	Title: "Granite 4", Class: "GraniteMoeHybridForCausalLM",
	Layer: join(preNorms, separateAttention, mambaMixers, graniteExperts, []Naming{
		{FusedGateUp, "shared_mlp.input_linear", "ffn_gate ffn_up"},
		{Down, "shared_mlp.output_linear", "ffn_down"},
		{SharedFused, "shared_mlp.input_linear", "ffn_gate_shexp ffn_up_shexp"},
		{SharedDown, "shared_mlp.output_linear", "ffn_down_shexp"},
	}),
	LlamaCpp: &LlamaCpp{Name: "granitehybrid", Permuted: true, Scales: true, RopeSwitch: true, Varied: true, States: "mamba", Check: func(c *ForwardConfig) string {
		if c.Mamba.Inner() != 2*c.HiddenSize {
			return "state spaces with other than 2 hidden_size inputs (mamba_expand)"
		}
		return c.Mamba.checkLlamaCpp()
	}, Config: func(m Metadata) map[string]any {
		config := mambaMetadata(m)
		config["hidden_act"], config["position_embedding_type"] = "silu", map[bool]string{true: "rope", false: "nope"}[m.Flag("rope.scaling.finetuned", true)]
		config["num_local_experts"], config["num_experts_per_tok"] = m.Count("expert_count", 0), m.Count("expert_used_count", 0)
		config["shared_intermediate_size"] = m.Count("expert_shared_feed_forward_length", m.Count("feed_forward_length", 0))
		return config
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 0, 0, 1e-6)
		k.positions(c, 2048, ropeDefaults{theta: 10000})
		k.attentionBias(c)
		k.graniteScales(c)
		k.irrelevant("init_method", "mlp_bias")
		k.mamba(c, k.size("mamba_expand", 2)*c.HiddenSize)
		k.mixers(c, MambaMixer, func(int) bool { return false }, "mamba", "linear_attention")
		only(k, "normalization_function", "rmsnorm", "is not a string")
		kind := k.string("position_embedding_type", "nope")
		if kind != "rope" && kind != "nope" {
			k.fail("position_embedding_type", "is %q: rope or nope was expected", kind)
		}
		shared := k.size("shared_intermediate_size", 1024)
		experts, perToken := k.count("num_local_experts", 8), k.count("num_experts_per_tok", 2)
		if experts > 0 {
			c.Experts = &ExpertConfig{Count: experts, PerToken: perToken, Intermediate: c.Intermediate, Normalize: true, Shared: shared}
		}
		c.Intermediate = shared
		for i := range c.Layers {
			l := &c.Layers[i]
			if l.Experts = experts > 0; kind == "nope" {
				l.Rope = -1
			}
		}
	},
})

// mambaMixers are the names of state spaces.
var mambaMixers = []Naming{
	{MambaIn, "mamba.in_proj", "ssm_in"},
	{MambaConv, "mamba.conv1d", "ssm_conv1d"},
	{MambaDecay, "mamba.A_log", "ssm_a"},
	{MambaSkip, "mamba.D", "ssm_d"},
	{MambaBias, "mamba.dt_bias", "ssm_dt"},
	{MambaNorm, "mamba.norm", "ssm_norm"},
	{MambaOut, "mamba.out_proj", "ssm_out"},
}

// checkLlamaCpp returns what llama.cpp's state spaces do not support, or "". Nemotron's default
// limit of time steps, 0.001, passes.
func (d *MambaConfig) checkLlamaCpp() string {
	switch {
	case d.InBias || d.OutBias:
		return "biases of the projections of state spaces (mamba_proj_bias, use_bias)"
	case !d.ConvBias:
		return "convolutions without a bias (mamba_conv_bias, use_conv_bias)"
	case d.Least > 0.001 || !math.IsInf(d.Most, 1):
		return "limits of time steps (time_step_limit, time_step_min)"
	case d.NormFirst && d.Norm:
		return "norms before the gate (mamba_norm_before_gate)"
	}
	return ""
}

// mambaMetadata returns the keys of state spaces under Bamba's names.
func mambaMetadata(m Metadata) map[string]any {
	heads := m.Count("ssm.time_step_rank", -1)
	return map[string]any{
		"mamba_d_conv": m.Count("ssm.conv_kernel", -1), "mamba_d_state": m.Count("ssm.state_size", -1), "mamba_n_groups": m.Count("ssm.group_count", -1),
		"mamba_n_heads": heads, "mamba_d_head": m.Count("ssm.inner_size", -1) / max(1, heads),
	}
}
