package arch

import "slices"

var _ = register("minimax_m2", Facts{
	Title: "MiniMax-M2", Class: "MiniMaxM2ForCausalLM",
	Layer: join(preNorms, separateAttention, queryKeyNorms, mixtralExperts,
		[]Naming{{RouterCorrection, "block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"}}),
	LlamaCpp: &LlamaCpp{Name: "minimax-m2", PartialRope: true, Mixture: LlamaCppMixture{Sigmoid: true}, Config: localExpertsMetadata},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 48, 8, 128, 1e-6)
		part := 1.0
		if dims := k.count("rotary_dim", 0); dims != 0 {
			part = float64(dims) / float64(max(1, c.HeadDim))
		}
		k.positions(c, 196608, ropeDefaults{theta: 5000000, part: part})
		k.always("use_qk_norm", "use_routing_bias")
		only(k, "qk_norm_type", "per_layer", "is not a string")
		only(k, "scoring_func", "sigmoid", "is not a string")
		only(k, "shared_intermediate_size", 0, "is not an integer")
		if types := read(k, "attn_type_list", []int(nil), "is not a list of integers"); slices.ContainsFunc(types, func(t int) bool { return t != 1 }) {
			k.fail("attn_type_list", "is %v: layers of softmax attention, 1, were expected", types)
		}
		k.irrelevant("router_jitter_noise", "use_mtp", "num_mtp_modules", "mtp_transformer_layers")
		c.QKNorm = WholeNorms
		k.experts(c, "num_local_experts", 256, 8).Sigmoid = true
	},
})
