package testgiant

import (
	"cmp"
	"fmt"
)

// Published are mixtures in their real shapes, by name: every tensor has the name, dtype and shape
// that the published checkpoint has, but for layers that predict further tokens. layers, if not 0,
// is another number of layers.
var Published = map[string]func(layers int64) *Model{
	"deepseek-v3": func(layers int64) *Model {
		return latents("deepseek_v3", cmp.Or(layers, 61), 129280, 128, 256, 3, 8, 4)
	},
	"kimi-k2":       func(layers int64) *Model { return latents("kimi_k2", cmp.Or(layers, 61), 163840, 64, 384, 1, 1, 1) },
	"qwen3-30b-a3b": func(layers int64) *Model { return qwen30B(cmp.Or(layers, 48)) },
}

// latents makes a mixture of DeepSeek's kind in FP8 with scales of blocks.
func latents(modelType string, layers, vocab, heads, experts, dense, groups, groupsUsed int64) *Model {
	const hidden, inter, width, queryRank, keyRank, nope, rope, value = 7168, 18432, 2048, 1536, 512, 128, 64, 128
	config := fmt.Sprintf(`{"model_type": %q, "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": %d, "intermediate_size": %d, "moe_intermediate_size": %d,
"num_hidden_layers": %d, "num_attention_heads": %d, "num_key_value_heads": %d, "q_lora_rank": %d, "kv_lora_rank": %d, "qk_nope_head_dim": %d, "qk_rope_head_dim": %d, "v_head_dim": %d,
"n_routed_experts": %d, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": %d, "topk_group": %d, "first_k_dense_replace": %d, "routed_scaling_factor": 2.5,
"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "vocab_size": %d, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "hidden_act": "silu",
"rope_theta": 10000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}`,
		modelType, hidden, inter, width, layers, heads, heads, queryRank, keyRank, nope, rope, value, experts, groups, groupsUsed, dense, vocab)
	list := ends(hidden, vocab)
	matrix := func(name string, rows, cols int64) {
		list = append(list, tensor{name + ".weight", "F8_E4M3", []int64{rows, cols}},
			tensor{name + ".weight_scale_inv", "F32", []int64{(rows + 127) / 128, (cols + 127) / 128}})
	}
	feedForward := func(at string, width int64) {
		matrix(at+"down_proj", hidden, width)
		matrix(at+"gate_proj", width, hidden)
		matrix(at+"up_proj", width, hidden)
	}
	norm := func(name string, n int64) { list = append(list, tensor{name + ".weight", "BF16", []int64{n}}) }
	for l := range layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		norm(p+"input_layernorm", hidden)
		norm(p+"post_attention_layernorm", hidden)
		norm(p+"self_attn.q_a_layernorm", queryRank)
		norm(p+"self_attn.kv_a_layernorm", keyRank)
		matrix(p+"self_attn.q_a_proj", queryRank, hidden)
		matrix(p+"self_attn.q_b_proj", heads*(nope+rope), queryRank)
		matrix(p+"self_attn.kv_a_proj_with_mqa", keyRank+rope, hidden)
		matrix(p+"self_attn.kv_b_proj", heads*(nope+value), keyRank)
		matrix(p+"self_attn.o_proj", hidden, heads*value)
		if l < dense {
			feedForward(p+"mlp.", inter)
			continue
		}
		list = append(list, tensor{p + "mlp.gate.weight", "BF16", []int64{experts, hidden}}, tensor{p + "mlp.gate.e_score_correction_bias", "F32", []int64{experts}})
		feedForward(p+"mlp.shared_experts.", width)
		for e := range experts {
			feedForward(fmt.Sprintf("%smlp.experts.%d.", p, e), width)
		}
	}
	return build(config, list)
}

// qwen30B makes Qwen3-30B-A3B in BF16.
func qwen30B(layers int64) *Model {
	const hidden, width, heads, kvHeads, headDim, experts, vocab = 2048, 768, 32, 4, 128, 128, 151936
	config := fmt.Sprintf(`{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": %d, "intermediate_size": 6144, "moe_intermediate_size": %d,
"num_hidden_layers": %d, "num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d, "num_experts": %d, "num_experts_per_tok": 8, "norm_topk_prob": true,
"decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": %d, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "max_position_embeddings": 40960, "hidden_act": "silu",
"tie_word_embeddings": false, "torch_dtype": "bfloat16"}`, hidden, width, layers, heads, kvHeads, headDim, experts, vocab)
	list := ends(hidden, vocab)
	add := func(name string, shape ...int64) { list = append(list, tensor{name + ".weight", "BF16", shape}) }
	for l := range layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		add(p+"input_layernorm", hidden)
		add(p+"post_attention_layernorm", hidden)
		add(p+"self_attn.q_proj", heads*headDim, hidden)
		add(p+"self_attn.k_proj", kvHeads*headDim, hidden)
		add(p+"self_attn.v_proj", kvHeads*headDim, hidden)
		add(p+"self_attn.o_proj", hidden, heads*headDim)
		add(p+"self_attn.q_norm", headDim)
		add(p+"self_attn.k_norm", headDim)
		add(p+"mlp.gate", experts, hidden)
		for e := range experts {
			x := fmt.Sprintf("%smlp.experts.%d.", p, e)
			add(x+"down_proj", hidden, width)
			add(x+"gate_proj", width, hidden)
			add(x+"up_proj", width, hidden)
		}
	}
	return build(config, list)
}
