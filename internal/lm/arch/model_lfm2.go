package arch

import "slices"

var _ = register("lfm2", Facts{
	Title: "LFM2", Class: "Lfm2ForCausalLM", tied: true,
	Layer:     join(lfm2Mixers, lfm2MLP),
	FinalNorm: lfm2Final,
	LlamaCpp:  &LlamaCpp{Name: "lfm2", Square: true, States: "conv", Config: lfm2Metadata},
	vocab:     65536,
	read: func(k *keys, c *ForwardConfig) {
		if k.has("block_ff_dim") { // the name in the first files
			k.keys["intermediate_size"] = k.keys["block_ff_dim"]
		}
		k.readLfm2Common(c)
		if k.boolean("block_auto_adjust_ff_dim", true) {
			c.Intermediate = 2 * c.Intermediate / 3
			c.Intermediate = int(k.positive("block_ffn_dim_multiplier", 1) * float64(c.Intermediate))
			multiple := k.size("block_multiple_of", 256)
			c.Intermediate = (c.Intermediate + multiple - 1) / max(1, multiple) * multiple
		}
		k.irrelevant("block_ffn_dim_multiplier", "block_multiple_of")
		full := read(k, "full_attn_idxs", []int(nil), "is not a list of integers")
		k.mixers(c, ShortConvMixer, func(i int) bool { return full == nil || slices.Contains(full, i) }, "conv")
	},
})

// lfm2Mixers are the names of attention, short convolutions and norms.
var lfm2Mixers = []Naming{
	{InputNorm, "operator_norm", "attn_norm"},
	{FeedForwardNorm, "ffn_norm", "ffn_norm"},
	{Query, "self_attn.q_proj", "attn_q"},
	{Key, "self_attn.k_proj", "attn_k"},
	{Value, "self_attn.v_proj", "attn_v"},
	{Output, "self_attn.out_proj", "attn_output"},
	{QueryNorm, "self_attn.q_layernorm", "attn_q_norm"},
	{KeyNorm, "self_attn.k_layernorm", "attn_k_norm"},
	{ConvIn, "conv.in_proj", "shortconv.in_proj"},
	{ConvKernel, "conv.conv", "shortconv.conv"},
	{ConvOut, "conv.out_proj", "shortconv.out_proj"},
}

func lfm2Metadata(m Metadata) map[string]any {
	return map[string]any{
		"norm_eps": m.Positive("attention.layer_norm_rms_epsilon", 0), "conv_L_cache": m.Count("shortconv.l_cache", -1),
		"conv_bias": false, "block_auto_adjust_ff_dim": false,
	}
}

var lfm2MLP = []Naming{
	{Gate, "feed_forward.w1", "ffn_gate"},
	{Up, "feed_forward.w3", "ffn_up"},
	{Down, "feed_forward.w2", "ffn_down"},
}

var lfm2Final = Naming{HF: "embedding_norm", GGUF: "token_embd_norm"}

// readLfm2Common reads the keys that LFM2 and its mixture share.
func (k *keys) readLfm2Common(c *ForwardConfig) {
	k.readHeads(c, 32, 8, 0, 1e-6)
	c.Intermediate = k.size("intermediate_size", 0)
	k.positions(c, 128000, ropeDefaults{theta: 1000000})
	c.NormEps = k.positive("norm_eps", 1e-5)
	c.QKNorm = HeadNorms
	c.ShortConv = &ShortConvConfig{Kernel: k.size("conv_L_cache", 3)}
	k.never("conv_bias")
	// Keys of the first files that say the same again, or nothing about the model.
	k.irrelevant("tie_embedding", "block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu",
		"block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "use_pos_enc", "theta")
}
