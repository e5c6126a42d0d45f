package arch

import "slices"

var _ = register("kimi_linear", Facts{
	Title: "Kimi Linear", Class: "KimiLinearForCausalLM",
	Layer: join(preNorms, latentAttention, []Naming{
		{DeltaQuery, "self_attn.q_proj", "attn_q"},
		{DeltaKey, "self_attn.k_proj", "attn_k"},
		{DeltaValue, "self_attn.v_proj", "attn_v"},
		{DeltaConvQuery, "self_attn.q_conv1d", "ssm_conv1d_q"},
		{DeltaConvKey, "self_attn.k_conv1d", "ssm_conv1d_k"},
		{DeltaConvValue, "self_attn.v_conv1d", "ssm_conv1d_v"},
		{DeltaForgetDown, "self_attn.f_a_proj", "ssm_f_a"},
		{DeltaForgetUp, "self_attn.f_b_proj", "ssm_f_b"},
		{DeltaB, "self_attn.b_proj", "ssm_beta"},
		{DeltaGateDown, "self_attn.g_a_proj", "ssm_g_a"},
		{DeltaGateUp, "self_attn.g_b_proj", "ssm_g_b"},
		{DeltaDecay, "self_attn.A_log", "ssm_a"},
		{DeltaBias, "self_attn.dt_bias", "ssm_dt"},
		{DeltaNorm, "self_attn.o_norm", "ssm_norm"},
		{DeltaOut, "self_attn.o_proj", "attn_output"},
	}, mixtralExperts, []Naming{{RouterCorrection, "block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias"}}, renamed(sharedExperts, "mlp", "block_sparse_moe"), separateMLP),
	LlamaCpp: &LlamaCpp{
		Name: "kimi-linear", NoRopeStep: 1, SplitLatents: true, States: "linear_attention",
		Mixture: LlamaCppMixture{Weights: WeightKeys, Sigmoid: true, Dense: true},
		Check: func(c *ForwardConfig) string {
			if !c.Experts.Normalize || c.DeltaNet.KeyHeads != c.Heads || c.Tied {
				return "moe_renormalize false, delta nets of other than num_attention_heads heads, or a tied lm_head"
			}
			return ""
		},
		Config: func(m Metadata) map[string]any {
			config := deepseekMetadata(m)
			delete(config, "norm_topk_prob") // has no key in the converter's files
			config["linear_attn_config"] = map[string]any{
				"head_dim": m.Count("kda.head_dim", -1), "num_heads": m.Count("attention.head_count", -1), "short_conv_kernel_size": m.Count("ssm.conv_kernel", -1),
			}
			return config
		},
	},
	vocab: 163840,
	read: func(k *keys, c *ForwardConfig) {
		for own, usual := range map[string]string{ // the names in published files
			"num_experts": "n_routed_experts", "num_experts_per_token": "num_experts_per_tok", "num_shared_experts": "n_shared_experts",
			"moe_renormalize": "norm_topk_prob", "num_expert_group": "n_group", "model_max_length": "max_position_embeddings",
		} {
			if k.has(own) {
				k.keys[usual] = k.keys[own]
			}
		}
		k.readLatent(c, 32, 1048576, 0)
		c.NormEps = k.positive("rms_norm_eps", 1e-5)
		only(k, "moe_router_activation_func", "sigmoid", "is not a string")
		k.always("mla_use_nope", "use_grouped_topk")
		scale := k.positive("routed_scaling_factor", 2.446)
		k.deepseekExperts(c, 256, 8, 1024, 1)
		c.Experts.Sigmoid, c.Experts.Scale = true, scale
		k.kimiLayers(c)
	},
})

// kimiLayers reads which layers have attention, counted from 1, and the sizes of the others.
func (k *keys) kimiLayers(c *ForwardConfig) {
	d := &DeltaNetConfig{ChannelDecay: true, KeyDim: k.size("linear_head_dim", 128), KeyHeads: k.size("linear_num_heads", 32), Kernel: k.size("linear_conv_kernel_dim", 4)}
	full := func(i int) bool { return i > 0 && i%4 == 0 }
	if in := k.within("linear_attn_config"); in != nil {
		d.KeyDim, d.KeyHeads, d.Kernel = in.size("head_dim", d.KeyDim), in.size("num_heads", d.KeyHeads), in.size("short_conv_kernel_size", d.Kernel)
		attention, delta := read(in, "full_attn_layers", []int(nil), "is not a list of integers"), read(in, "kda_layers", []int(nil), "is not a list of integers")
		if attention != nil && delta != nil {
			full = func(i int) bool { return slices.Contains(attention, i+1) }
			for i := range c.Layers {
				if full(i) == slices.Contains(delta, i+1) {
					in.fail("kda_layers", "and full_attn_layers: one of the two was expected to have layer %d", i+1)
				}
			}
		}
		k.join(in)
	}
	d.ValueDim, d.ValueHeads = d.KeyDim, d.KeyHeads
	c.DeltaNet = d
	k.mixers(c, DeltaNetMixer, full, "linear_attention")
	kinds := byLayer(k, c, "mlp_layer_types", []string(nil), "is not a list of strings")
	for i := range c.Layers {
		l := &c.Layers[i]
		if l.Rope = -1; kinds != nil {
			l.Experts = kinds[i] == "sparse"
		}
	}
}
