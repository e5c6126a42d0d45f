package arch

import "slices"

var _ = register("bamba", Facts{
	Title: "Bamba", Class: "BambaForCausalLM",
	Layer:     join(feedForwardNames, separateAttention, mambaMixers),
	FinalNorm: Naming{HF: "final_layernorm", GGUF: "output_norm"},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 8, 0, 1e-5)
		k.positions(c, 262144, ropeDefaults{theta: 10000, part: 0.5})
		k.attentionBias(c)
		c.MLPBias = k.boolean("mlp_bias", false)
		k.irrelevant("num_logits_to_keep", "z_loss_coefficient", "attn_rotary_emb")
		k.mamba(c, k.size("mamba_expand", 2)*c.HiddenSize)
		attention := read(k, "attn_layer_indices", []int(nil), "is not a list of integers")
		k.mixers(c, MambaMixer, func(i int) bool { return slices.Contains(attention, i) }, "mamba", "linear_attention")
	},
})

// feedForward are the names of the network in Bamba, Falcon-H1 and Llama 4.
var feedForward = renamed(separateMLP, "mlp", "feed_forward")

// feedForwardNames are the names of norms and of the network in Bamba and Falcon-H1.
var feedForwardNames = join([]Naming{{InputNorm, "input_layernorm", "attn_norm"}, {FeedForwardNorm, "pre_ff_layernorm", "ffn_norm"}}, feedForward)
