package arch

var _ = register("qwen3_5_text", Facts{
	Title: "Qwen3.5", Class: "Qwen3_5ForCausalLM",
	Layer: join(qwen35Norms, separateAttention, queryKeyNorms, qwen35Inputs, deltaNets, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "qwen35", PartialRope: true, TiledValues: true, Check: checkDeltaNets, Config: func(m Metadata) map[string]any {
		config := deltaNetMetadata(m)
		config["hidden_act"] = "silu"
		return config
	}},
	vocab: 248320,
	read: func(k *keys, c *ForwardConfig) {
		k.readQwen35Common(c, 16, 4)
	},
})

var _ = registerMultimodal("qwen3_5", nesting{class: "Qwen3_5ForConditionalGeneration", text: "qwen3_5_text", irrelevant: qwenImages})

// qwen35Norms are also the norms of Qwen3-Next, GLM-4.5, gpt-oss and Seed-OSS.
var qwen35Norms = []Naming{
	{InputNorm, "input_layernorm", "attn_norm"},
	{FeedForwardNorm, "post_attention_layernorm", "post_attention_norm"},
}

// qwen35Inputs are the names of a delta net's input projections.
var qwen35Inputs = []Naming{
	{DeltaQKV, "linear_attn.in_proj_qkv", "attn_qkv"},
	{DeltaZ, "linear_attn.in_proj_z", "attn_gate"},
	{DeltaB, "linear_attn.in_proj_b", "ssm_beta"},
	{DeltaA, "linear_attn.in_proj_a", "ssm_alpha"},
}

// deltaNets are the names of a delta net behind its projections.
var deltaNets = []Naming{
	{DeltaConv, "linear_attn.conv1d", "ssm_conv1d"},
	{DeltaDecay, "linear_attn.A_log", "ssm_a"},
	{DeltaBias, "linear_attn.dt_bias", "ssm_dt"},
	{DeltaNorm, "linear_attn.norm", "ssm_norm"},
	{DeltaOut, "linear_attn.out_proj", "ssm_out"},
}

// readQwen35Common reads the keys that Qwen3.5 and its mixture share.
func (k *keys) readQwen35Common(c *ForwardConfig, heads, kvHeads int) {
	k.readCommon(c, heads, kvHeads, 256, 1e-6)
	k.positions(c, 32768, ropeDefaults{theta: 10000, part: 0.25, sections: []int{11, 11, 10}})
	k.never("attention_bias")
	k.deltaNet(c)
	k.always("attn_output_gate")
	k.irrelevant("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype", "mlp_only_layers")
}
