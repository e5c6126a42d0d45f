package arch

var _ = register("hunyuan_v1_dense", Facts{
	Title: "Hunyuan (dense)", Class: "HunYuanDenseV1ForCausalLM",
	Layer:    join(preNorms, separateAttention, hunyuanNorms, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "hunyuan-dense", Config: siluMetadata},
	read:     func(k *keys, c *ForwardConfig) { k.readHunyuan(c) },
})

var hunyuanNorms = []Naming{
	{QueryNorm, "self_attn.query_layernorm", "attn_q_norm"},
	{KeyNorm, "self_attn.key_layernorm", "attn_k_norm"},
}

func (k *keys) readHunyuan(c *ForwardConfig) {
	k.readCommon(c, 32, 0, 0, 1e-5)
	k.positions(c, 2048, ropeDefaults{theta: 10000, alpha: true})
	k.attentionBias(c)
	k.never("mlp_bias", "use_cla")
	k.always("use_qk_norm")
	k.irrelevant("eod_token_id", "sep_token_id", "im_start_id", "im_end_id", "im_newline_id", "pad_id", "org_vocab_size",
		"attention_head_dim", "cla_share_factor", "norm_type", "use_rotary_pos_emb")
	c.QKNorm = RotatedNorms
}
