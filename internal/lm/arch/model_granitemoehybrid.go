package arch

var _ = register("granitemoehybrid", Facts{
	Title: "Granite 4", Class: "GraniteMoeHybridForCausalLM",
	Layer: join(preNorms, separateAttention, mambaMixers, graniteExperts, []Naming{
		{FusedGateUp, "shared_mlp.input_linear", "ffn_up"},
		{Down, "shared_mlp.output_linear", "ffn_down"},
		{SharedFused, "shared_mlp.input_linear", "ffn_up_shexp"},
		{SharedDown, "shared_mlp.output_linear", "ffn_down_shexp"},
	}),
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 0, 0, 1e-6)
		k.positions(c, 2048, ropeDefaults{theta: 10000})
		k.attentionBias(c)
		k.graniteScales(c)
		k.irrelevant("output_router_logits", "router_aux_loss_coef", "init_method", "mlp_bias")
		k.mamba(c, k.size("mamba_expand", 2)*c.HiddenSize)
		k.mixers(c, MambaMixer, func(int) bool { return false }, "mamba", "linear_attention")
		only(k, "normalization_function", "rmsnorm", "is not a string")
		ropes := false
		switch kind := k.string("position_embedding_type", "nope"); kind {
		case "rope":
			ropes = true
		case "nope":
		default:
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
			if l.Experts = experts > 0; !ropes {
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
