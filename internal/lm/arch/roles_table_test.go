package arch

// Each line of a case is a tensor of the published checkpoint: name, shape, role, and the expected
// treatment: "q" (quantized) or "keep"; "T" for in x out; "e128" for 128 fused experts.
var classifyTests = []struct {
	arch, config, tensors string
}{
	{"llama 3.2 1B", `{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":2048,"vocab_size":128256,"tie_word_embeddings":true}`, `
		model.embed_tokens.weight 128256x2048 embedding q
		model.layers.0.self_attn.q_proj.weight 2048x2048 projection q
		model.layers.0.self_attn.k_proj.weight 512x2048 projection q
		model.layers.0.self_attn.v_proj.weight 512x2048 projection q
		model.layers.0.self_attn.o_proj.weight 2048x2048 projection q
		model.layers.0.self_attn.rotary_emb.inv_freq 32 position keep
		model.layers.0.mlp.gate_proj.weight 8192x2048 projection q
		model.layers.0.mlp.up_proj.weight 8192x2048 projection q
		model.layers.0.mlp.down_proj.weight 2048x8192 projection q
		model.layers.0.input_layernorm.weight 2048 norm keep
		model.layers.0.post_attention_layernorm.weight 2048 norm keep
		model.norm.weight 2048 norm keep
		lm_head.weight 128256x2048 head q`},
	{"smollm2 135M", `{"model_type":"llama","hidden_size":576}`, `
		model.embed_tokens.weight 49152x576 embedding q
		model.layers.29.self_attn.k_proj.weight 192x576 projection q
		model.layers.29.mlp.down_proj.weight 576x1536 projection q`},
	{"llama 3.1 FP8, compressed-tensors", `{"model_type":"llama","hidden_size":4096}`, `
		model.layers.0.mlp.down_proj.weight 4096x14336 projection q
		model.layers.0.mlp.down_proj.weight_scale 4096x1 other keep
		model.layers.0.mlp.down_proj.input_scale 1 other keep
		model.layers.0.self_attn.k_scale - other keep`},
	{"mistral 7B", `{"model_type":"mistral","hidden_size":4096,"tie_word_embeddings":false}`, `
		model.layers.31.self_attn.k_proj.weight 1024x4096 projection q
		lm_head.weight 32000x4096 head q`},
	{"mistral's own files", ``, `
		tok_embeddings.weight 131072x5120 embedding q
		layers.0.attention.wq.weight 4096x5120 projection q
		layers.0.attention.wq.qscale_weight - other keep
		layers.0.attention.wq.qscale_act - other keep
		layers.0.feed_forward.w2.weight 5120x14336 projection q
		layers.0.attention_norm.weight 5120 norm keep
		vision_encoder.transformer.layers.0.attention.wq.weight 1024x1024 other keep
		vision_language_adapter.w_in.weight 5120x1024 other keep
		output.weight 131072x5120 head q`},
	{"qwen2 0.5B", `{"model_type":"qwen2","hidden_size":896,"tie_word_embeddings":true}`, `
		model.layers.0.self_attn.q_proj.weight 896x896 projection q
		model.layers.0.self_attn.q_proj.bias 896 bias keep
		model.layers.0.self_attn.k_proj.weight 128x896 projection q`},
	{"qwen2.5 vl", `{"model_type":"qwen2_5_vl","hidden_size":2048,"vision_config":{"hidden_size":1280}}`, `
		model.embed_tokens.weight 151936x2048 embedding q
		model.layers.0.mlp.gate_proj.weight 11008x2048 projection q
		visual.patch_embed.proj.weight 1280x3x2x14x14 other keep
		visual.blocks.0.attn.qkv.weight 3840x1280 other keep
		visual.merger.mlp.0.weight 5120x5120 other keep`},
	{"qwen3 0.6B", `{"model_type":"qwen3","hidden_size":1024,"head_dim":128}`, `
		model.layers.0.self_attn.q_proj.weight 2048x1024 projection q
		model.layers.0.self_attn.o_proj.weight 1024x2048 projection q
		model.layers.0.self_attn.q_norm.weight 128 norm keep
		model.layers.0.self_attn.k_norm.weight 128 norm keep`},
	{"command r+", `{"model_type":"cohere","hidden_size":12288}`, `
		model.layers.0.self_attn.q_norm.weight 96x128 norm keep
		model.layers.0.self_attn.q_proj.weight 12288x12288 projection q`},
	{"gemma 2 2B", `{"model_type":"gemma2","hidden_size":2304}`, `
		model.embed_tokens.weight 256000x2304 embedding q
		model.layers.0.pre_feedforward_layernorm.weight 2304 norm keep
		model.layers.0.post_feedforward_layernorm.weight 2304 norm keep
		model.layers.0.self_attn.q_proj.weight 2048x2304 projection q`},
	{"gemma 3 4B", `{"model_type":"gemma3","text_config":{"model_type":"gemma3_text","hidden_size":2560},"vision_config":{"hidden_size":1152}}`, `
		language_model.model.embed_tokens.weight 262208x2560 embedding q
		language_model.model.layers.0.self_attn.q_norm.weight 256 norm keep
		language_model.model.layers.0.mlp.down_proj.weight 2560x10240 projection q
		language_model.model.norm.weight 2560 norm keep
		multi_modal_projector.mm_input_projection_weight 1152x2560 other keep
		multi_modal_projector.mm_soft_emb_norm.weight 1152 other keep
		vision_tower.vision_model.embeddings.patch_embedding.weight 1152x3x14x14 other keep
		vision_tower.vision_model.embeddings.position_embedding.weight 4096x1152 other keep
		vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight 4304x1152 other keep`},
	{"gemma 3n E2B", `{"model_type":"gemma3n","text_config":{"model_type":"gemma3n_text","hidden_size":2048}}`, `
		model.language_model.embed_tokens.weight 262400x2048 embedding q
		model.language_model.embed_tokens_per_layer.weight 262144x7680 embedding q
		model.language_model.per_layer_model_projection.weight 7680x2048 other keep
		model.language_model.per_layer_projection_norm.weight 256 norm keep
		model.language_model.altup_projections.0.weight 2048x2048 other keep
		model.language_model.altup_unembed_projections.2.weight 2048x2048 other keep
		model.language_model.layers.0.altup.correct_output_scale 2048 other keep
		model.language_model.layers.0.altup.prediction_coefs.weight 16x4 other keep
		model.language_model.layers.0.altup.router_norm.weight 2048 router keep
		model.language_model.layers.0.laurel.linear_left.weight 64x2048 other keep
		model.language_model.layers.0.per_layer_input_gate.weight 256x2048 projection q
		model.language_model.layers.0.per_layer_projection.weight 2048x256 projection q
		model.language_model.layers.0.mlp.up_proj.weight 8192x2048 projection q
		model.embed_vision.embedding.weight 128x2048 other keep
		model.embed_audio.embedding_projection.weight 2048x1536 other keep
		model.audio_tower.conformer.0.lconv1d.linear_start.weight 3072x1536 other keep
		model.vision_tower.timm_model.conv_stem.conv.weight 64x3x3x3 other keep`},
	{"gemma 4 26B-A4B", `{"model_type":"gemma4","text_config":{"model_type":"gemma4_text","hidden_size":2816,"num_experts":128}}`, `
		model.language_model.layers.0.experts.gate_up_proj 128x1408x2816 expert q e128
		model.language_model.layers.0.experts.down_proj 128x2816x704 expert q e128
		model.language_model.layers.0.router.proj.weight 128x2816 router keep
		model.language_model.layers.0.router.per_expert_scale 128 router keep
		model.language_model.layers.0.layer_scalar 1 other keep
		model.language_model.layers.0.mlp.gate_proj.weight 2112x2816 projection q`},
	{"phi 3 mini", `{"model_type":"phi3","hidden_size":3072}`, `
		model.layers.0.self_attn.qkv_proj.weight 9216x3072 projection q
		model.layers.0.self_attn.o_proj.weight 3072x3072 projection q
		model.layers.0.mlp.gate_up_proj.weight 16384x3072 projection q
		model.layers.0.mlp.down_proj.weight 3072x8192 projection q
		lm_head.weight 32064x3072 head q`},
	{"phi 4 multimodal", `{"model_type":"phi4mm","hidden_size":3072}`, `
		model.layers.0.self_attn.qkv_proj.base_layer.weight 5120x3072 projection q
		model.layers.0.self_attn.qkv_proj.lora_A.vision.weight 256x3072 other keep
		model.embed_tokens_extend.audio_embed.encoder.embed.out.weight 1024x9216 other keep`},
	{"mixtral 8x7B", `{"model_type":"mixtral","hidden_size":4096,"num_local_experts":8}`, `
		model.layers.0.block_sparse_moe.gate.weight 8x4096 router keep
		model.layers.0.block_sparse_moe.experts.0.w1.weight 14336x4096 expert q
		model.layers.0.block_sparse_moe.experts.7.w2.weight 4096x14336 expert q
		model.layers.0.mlp.experts.gate_up_proj 8x28672x4096 expert q e8
		model.layers.0.mlp.experts.down_proj 8x4096x14336 expert q e8`},
	{"qwen3 30B-A3B", `{"model_type":"qwen3_moe","hidden_size":2048,"num_experts":128}`, `
		model.layers.0.mlp.gate.weight 128x2048 router keep
		model.layers.0.mlp.experts.0.gate_proj.weight 768x2048 expert q
		model.layers.0.mlp.experts.127.down_proj.weight 2048x768 expert q`},
	{"qwen3 vl 30B-A3B", `{"model_type":"qwen3_vl_moe","text_config":{"model_type":"qwen3_vl_moe_text","hidden_size":2048,"num_experts":128}}`, `
		model.language_model.layers.0.mlp.experts.gate_up_proj 128x2048x1536 expert q T e128
		model.language_model.layers.0.mlp.experts.down_proj 128x768x2048 expert q T e128
		model.visual.deepstack_merger_list.0.linear_fc1.weight 4608x4608 other keep`},
	{"qwen3 vl moe as transformers 5 saves it", `{"model_type":"qwen3_vl_moe","text_config":{"model_type":"qwen3_vl_moe_text","hidden_size":2048}}`, `
		model.language_model.layers.0.mlp.experts.gate_up_proj 128x1536x2048 expert keep
		model.language_model.layers.0.mlp.experts.down_proj 128x2048x768 expert keep`},
	{"qwen3.5 35B-A3B", `{"model_type":"qwen3_5_moe","text_config":{"model_type":"qwen3_5_moe_text","hidden_size":2048,"num_experts":256}}`, `
		model.language_model.embed_tokens.weight 248320x2048 embedding q
		model.language_model.layers.0.mlp.gate.weight 256x2048 router keep
		model.language_model.layers.0.mlp.experts.gate_up_proj 256x1024x2048 expert q e256
		model.language_model.layers.0.mlp.experts.down_proj 256x2048x512 expert q e256
		model.language_model.layers.0.mlp.shared_expert.gate_proj.weight 512x2048 projection q
		model.language_model.layers.0.mlp.shared_expert_gate.weight 1x2048 router keep
		model.language_model.layers.0.linear_attn.A_log 32 other keep
		model.language_model.layers.0.linear_attn.dt_bias 32 other keep
		model.language_model.layers.0.linear_attn.conv1d.weight 8192x1x4 conv keep
		model.language_model.layers.0.linear_attn.in_proj_qkv.weight 8192x2048 projection q
		model.language_model.layers.0.linear_attn.in_proj_a.weight 32x2048 projection q
		model.language_model.layers.0.linear_attn.norm.weight 128 norm keep
		model.language_model.layers.0.linear_attn.out_proj.weight 2048x4096 projection q
		model.visual.pos_embed.weight 2304x1152 other keep
		mtp.layers.0.mlp.experts.gate_up_proj 256x1024x2048 expert q e256
		mtp.fc.weight 2048x4096 projection q
		lm_head.weight 248320x2048 head q`},
	{"qwen3 next", `{"model_type":"qwen3_next","hidden_size":2048,"num_experts":512}`, `
		model.layers.0.linear_attn.in_proj_qkvz.weight 12288x2048 projection q
		model.layers.0.mlp.experts.0.up_proj.weight 512x2048 expert q`},
	{"deepseek v3", `{"model_type":"deepseek_v3","hidden_size":7168,"n_routed_experts":256,"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`, `
		model.layers.3.self_attn.q_a_proj.weight 1536x7168 projection q
		model.layers.3.self_attn.q_a_proj.weight_scale_inv 12x56 other keep
		model.layers.3.self_attn.q_a_layernorm.weight 1536 norm keep
		model.layers.3.self_attn.kv_a_proj_with_mqa.weight 576x7168 projection q
		model.layers.3.self_attn.kv_b_proj.weight 32768x512 projection q
		model.layers.3.mlp.gate.weight 256x7168 router keep
		model.layers.3.mlp.gate.e_score_correction_bias 256 router keep
		model.layers.3.mlp.experts.255.down_proj.weight 7168x2048 expert q
		model.layers.3.mlp.experts.255.down_proj.weight_scale_inv 56x16 other keep
		model.layers.3.mlp.shared_experts.up_proj.weight 2048x7168 projection q
		model.layers.61.embed_tokens.weight 129280x7168 embedding q
		model.layers.61.enorm.weight 7168 norm keep
		model.layers.61.eh_proj.weight 7168x14336 projection q
		model.layers.61.shared_head.norm.weight 7168 norm keep
		model.layers.61.shared_head.head.weight 129280x7168 head q`},
	{"deepseek v3.2", `{"model_type":"deepseek_v32","hidden_size":7168}`, `
		model.layers.0.self_attn.indexer.wq_b.weight 8192x1536 other keep
		model.layers.0.self_attn.indexer.weights_proj.weight 64x7168 other keep
		model.layers.0.self_attn.indexer.k_norm.weight 128 norm keep`},
	{"llama 4 scout", `{"model_type":"llama4","text_config":{"model_type":"llama4_text","hidden_size":5120,"num_local_experts":16}}`, `
		language_model.model.layers.0.feed_forward.router.weight 16x5120 router keep
		language_model.model.layers.0.feed_forward.experts.gate_up_proj 16x5120x16384 expert q T e16
		language_model.model.layers.0.feed_forward.experts.down_proj 16x8192x5120 expert q T e16
		language_model.model.layers.0.feed_forward.shared_expert.down_proj.weight 5120x8192 projection q
		vision_model.positional_embedding_vlm 577x1408 other keep
		multi_modal_projector.linear_1.weight 5120x4096 other keep`},
	{"gpt-oss 20B", `{"model_type":"gpt_oss","hidden_size":2880,"num_local_experts":32}`, `
		model.layers.0.self_attn.sinks 64 other keep
		model.layers.0.self_attn.q_proj.bias 4096 bias keep
		model.layers.0.mlp.router.weight 32x2880 router keep
		model.layers.0.mlp.router.bias 32 router keep
		model.layers.0.mlp.experts.gate_up_proj_blocks 32x5760x90x16 expert keep
		model.layers.0.mlp.experts.gate_up_proj_scales 32x5760x90 other keep
		model.layers.0.mlp.experts.gate_up_proj_bias 32x5760 bias keep
		model.layers.0.mlp.experts.down_proj_bias 32x2880 bias keep
		lm_head.weight 201088x2880 head q`},
	{"gpt-oss 20B in BF16", `{"model_type":"gpt_oss","hidden_size":2880,"num_local_experts":32}`, `
		model.layers.0.mlp.experts.gate_up_proj 32x2880x5760 expert q T e32
		model.layers.0.mlp.experts.down_proj 32x2880x2880 expert q T e32`},
	{"granite 3 MoE", `{"model_type":"granitemoe","hidden_size":1536,"num_local_experts":40}`, `
		model.layers.0.block_sparse_moe.router.layer.weight 40x1536 router keep
		model.layers.0.block_sparse_moe.input_linear.weight 40x1024x1536 expert q e40
		model.layers.0.block_sparse_moe.output_linear.weight 40x1536x512 expert q e40`},
	{"granite 4", `{"model_type":"granitemoehybrid","hidden_size":1536,"num_local_experts":64}`, `
		model.layers.0.shared_mlp.input_linear.weight 2048x1536 projection q
		model.layers.0.mamba.conv1d.weight 3328x1x4 conv keep
		model.layers.0.mamba.in_proj.weight 6448x1536 projection q
		model.layers.0.mamba.D 48 other keep`},
	{"nemotron 3 nano", `{"model_type":"nemotron_h","hidden_size":2688,"n_routed_experts":128}`, `
		backbone.embeddings.weight 131072x2688 embedding q
		backbone.layers.0.norm.weight 2688 norm keep
		backbone.layers.0.mixer.in_proj.weight 10304x2688 projection q
		backbone.layers.0.mixer.conv1d.bias 6144 bias keep
		backbone.layers.0.mixer.A_log 64 other keep
		backbone.layers.0.mixer.norm.weight 4096 norm keep
		backbone.layers.1.mixer.gate.weight 128x2688 router keep
		backbone.layers.1.mixer.gate.e_score_correction_bias 128 router keep
		backbone.layers.1.mixer.experts.127.up_proj.weight 1856x2688 expert q
		backbone.layers.1.mixer.shared_experts.down_proj.weight 2688x3712 projection q
		lm_head.weight 131072x2688 head q`},
	{"kimi linear", `{"model_type":"kimi_linear","hidden_size":2304,"num_experts":256}`, `
		model.layers.0.self_attn.A_log 1x1x32x1 other keep
		model.layers.0.self_attn.dt_bias 4096 other keep
		model.layers.0.self_attn.q_conv1d.weight 4096x1x4 conv keep
		model.layers.0.self_attn.f_a_proj.weight 128x2304 projection q
		model.layers.0.self_attn.f_b_proj.weight 4096x128 projection q
		model.layers.0.self_attn.o_norm.weight 128 norm keep
		model.layers.1.block_sparse_moe.gate.weight 256x2304 router keep
		model.layers.1.block_sparse_moe.experts.255.w2.weight 2304x1024 expert q`},
	{"jetmoe", `{"model_type":"jetmoe","hidden_size":2048,"num_local_experts":8}`, `
		model.layers.0.mlp.input_linear.weight 8x11264x2048 expert q e8
		model.layers.0.mlp.output_linear.weight 8x2048x5632 expert q e8
		model.layers.0.mlp.router.layer.weight 8x2048 router keep
		model.layers.0.self_attention.experts.input_linear.weight 8x2048x2048 expert q e8
		model.layers.0.self_attention.kv_proj.weight 4096x2048 projection q`},
	{"aria", `{"model_type":"aria","text_config":{"model_type":"aria_text","hidden_size":2560,"moe_num_experts":64}}`, `
		language_model.model.layers.0.mlp.experts.fc1.weight 64x2560x3328 expert q T e64
		language_model.model.layers.0.mlp.experts.fc2.weight 64x1664x2560 expert q T e64
		language_model.model.layers.0.mlp.router.weight 64x2560 router keep
		language_model.model.layers.0.mlp.shared_experts.up_proj.weight 3328x2560 projection q`},
	{"phi 3.5 MoE", `{"model_type":"phimoe","hidden_size":4096}`, `
		model.layers.0.block_sparse_moe.gate.weight 16x4096 router keep
		model.layers.0.block_sparse_moe.experts.15.w3.weight 6400x4096 expert q`},
	{"dbrx", `{"model_type":"dbrx","d_model":6144}`, `
		transformer.wte.weight 100352x6144 embedding q
		transformer.blocks.0.ffn.experts.mlp.w1 172032x6144 expert q
		transformer.blocks.0.ffn.experts.mlp.v1 172032x6144 expert q
		transformer.blocks.0.ffn.experts.mlp.w2 172032x6144 expert keep
		transformer.blocks.0.ffn.router.layer.weight 16x6144 router keep
		transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight 8192x6144 projection q
		transformer.blocks.0.norm_attn_norm.norm_1.weight 6144 norm keep`},
	{"gpt2", `{"model_type":"gpt2","n_embd":768}`, `
		wte.weight 50257x768 embedding q
		wpe.weight 1024x768 position keep
		h.0.attn.bias 1x1x1024x1024 other keep
		h.0.attn.c_attn.weight 768x2304 projection q T
		h.0.attn.c_attn.bias 2304 bias keep
		h.0.attn.c_proj.weight 768x768 projection q T
		h.0.mlp.c_fc.weight 768x3072 projection q T
		h.0.mlp.c_proj.weight 3072x768 projection q T
		h.0.ln_1.weight 768 norm keep
		h.0.ln_1.bias 768 norm keep
		ln_f.weight 768 norm keep`},
	{"gpt2 that is not", `{"model_type":"gpt2","n_embd":768}`, `
		transformer.h.0.attn.c_attn.weight 2304x768 projection keep`},
	{"starcoder2", `{"model_type":"starcoder2","hidden_size":3072}`, `
		model.layers.0.mlp.c_fc.weight 12288x3072 projection q
		model.layers.0.mlp.c_proj.weight 3072x12288 projection q`},
	{"an unknown GPT", `{"model_type":"mygpt","n_embd":768}`, `
		transformer.h.0.attn.c_attn.weight 2304x768 projection keep
		transformer.h.0.attn.query.weight 768x768 projection q`},
	{"gpt neox", `{"model_type":"gpt_neox","hidden_size":512}`, `
		gpt_neox.embed_in.weight 50304x512 embedding q
		gpt_neox.layers.0.attention.query_key_value.weight 1536x512 projection q
		gpt_neox.layers.0.attention.masked_bias - other keep
		gpt_neox.layers.0.mlp.dense_4h_to_h.weight 512x2048 projection q
		gpt_neox.final_layer_norm.weight 512 norm keep
		embed_out.weight 50304x512 head q`},
	{"bloom", `{"model_type":"bloom"}`, `
		transformer.word_embeddings.weight 250880x1024 embedding q
		transformer.word_embeddings_layernorm.weight 1024 norm keep
		transformer.h.0.mlp.dense_h_to_4h.weight 4096x1024 projection q`},
	{"olmo's own files", ``, `
		model.transformer.wte.weight 50304x2048 embedding q
		model.transformer.blocks.0.ff_out.weight 2048x8192 projection q
		model.transformer.ff_out.weight 50304x2048 head q`},
	{"chatglm", `{"model_type":"chatglm","hidden_size":4096,"padded_vocab_size":65024}`, `
		transformer.embedding.word_embeddings.weight 65024x4096 embedding q
		transformer.encoder.layers.0.self_attention.query_key_value.weight 4608x4096 projection q
		transformer.output_layer.weight 65024x4096 head q
		transformer.rotary_pos_emb.inv_freq 32 position keep`},
	{"bert", `{"model_type":"bert","architectures":["BertModel"]}`, `
		embeddings.word_embeddings.weight 30522x768 embedding q
		embeddings.position_embeddings.weight 512x768 position keep
		embeddings.token_type_embeddings.weight 2x768 other keep
		embeddings.LayerNorm.gamma 768 norm keep
		encoder.layer.0.attention.output.dense.weight 768x768 projection q`},
	{"t5", `{"model_type":"t5"}`, `
		shared.weight 32128x512 embedding q
		encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight 32x8 position keep
		encoder.block.0.layer.0.SelfAttention.q.weight 512x512 projection q`},
	{"mamba", `{"model_type":"mamba","hidden_size":768}`, `
		backbone.embeddings.weight 50280x768 embedding q
		backbone.layers.0.mixer.A_log 1536x16 other keep
		backbone.layers.0.mixer.D 1536 other keep
		backbone.layers.0.mixer.conv1d.weight 1536x1x4 conv keep
		backbone.layers.0.mixer.conv1d.bias 1536 bias keep
		backbone.layers.0.mixer.dt_proj.weight 1536x48 other keep
		backbone.layers.0.mixer.dt_proj.bias 1536 other keep
		backbone.layers.0.mixer.in_proj.weight 3072x768 projection q
		backbone.layers.0.mixer.x_proj.weight 80x1536 projection q
		backbone.norm_f.weight 768 norm keep`},
	{"jamba", `{"model_type":"jamba","hidden_size":4096,"num_experts":16}`, `
		model.layers.0.mamba.dt_layernorm.weight 256 norm keep
		model.layers.0.mamba.A_log 8192x16 other keep
		model.layers.1.feed_forward.router.weight 16x4096 router keep
		model.layers.1.feed_forward.experts.0.gate_proj.weight 14336x4096 expert q
		model.layers.0.feed_forward.down_proj.weight 4096x14336 projection q`},
	{"lfm2", `{"model_type":"lfm2","hidden_size":2048}`, `
		model.layers.0.conv.conv.weight 2048x1x3 conv keep
		model.layers.0.conv.in_proj.weight 6144x2048 projection q
		model.layers.0.operator_norm.weight 2048 norm keep
		model.layers.0.feed_forward.w1.weight 8192x2048 projection q`},
	{"recurrent gemma", `{"model_type":"recurrent_gemma"}`, `
		model.layers.0.temporal_block.rg_lru.recurrent_gate_weight 10x256x256 other keep
		model.layers.0.temporal_block.conv_1d.weight 2560x1x4 conv keep
		model.layers.0.temporal_block.linear_x.weight 2560x2560 projection q`},
	{"rwkv 6", `{"model_type":"rwkv6"}`, `
		rwkv.blocks.0.attention.time_maa_w1 2048x160 other keep
		rwkv.blocks.0.attention.time_faaaa 32x64 other keep
		rwkv.blocks.0.attention.key.weight 2048x2048 projection q
		rwkv.blocks.0.ln1.weight 2048 norm keep
		head.weight 65536x2048 head q`},
	{"internvl", `{"model_type":"internvl_chat","llm_config":{"model_type":"qwen2","hidden_size":896}}`, `
		language_model.model.layers.0.mlp.up_proj.weight 4864x896 projection q
		mlp1.1.weight 896x4096 other keep
		vision_model.encoder.layers.0.attn.qkv.weight 3072x1024 other keep`},
	{"GPTQ", `{"model_type":"llama"}`, `
		model.layers.0.mlp.up_proj.qweight 512x14336 other keep
		model.layers.0.mlp.up_proj.scales 32x14336 other keep
		model.layers.0.mlp.up_proj.g_idx 4096 other keep`},
	{"llama.c", ``, `
		tok_embeddings.weight 512x64 embedding q
		layers.0.attention.wk.weight 32x64 projection q
		layers.0.feed_forward.w2.weight 64x172 projection q
		layers.0.ffn_norm.weight 64 norm keep
		freqs_cis 512x4 position keep
		output.weight 512x64 head q`},
	{"templateGPT", ``, `
		token_embedder.weight 2048x128 embedding q
		layers.0.attn.Wk.weight 64x128 projection q
		layers.0.mlp.Wdown.weight 128x341 projection q
		layers.0.mlp.Wgate.weight 341x128 projection q
		layers.0.pre_attn_norm.w 128 norm keep
		layers.0.pre_attn_norm.b 128 norm keep
		output.weight 2048x128 head q`},
	{"PaddleOCR", ``, `
		conv2d_142.w_0 60x480x1x3 conv keep
		conv2d_107.b_0 240 bias keep
		batch_norm2d_150.w_1 480 norm keep
		layer_norm_43.w_0 120 norm keep
		linear_77.w_0 120x360 projection q T
		linear_77.b_0 360 bias keep`},
	{"no config", ``, `
		model.layers.0.mlp.experts.gate_up_proj 8x128x64 expert keep
		transformer.h.0.mlp.c_fc.weight 64x256 projection keep
		model.layers.0.feed_forward.experts.weight1 4096x8192 expert keep
		a.weight 32x64 projection q
		b.weight 31x64 projection keep
		c.weight 64 other keep
		d.weight - other keep
		e.weight 8x64x64 other keep
		f.weight 2x8x64x64 other keep
		w 48x48 projection q`},
	{"experts fewer than the config says", `{"model_type":"mixtral","hidden_size":64,"num_local_experts":8}`, `
		model.layers.0.mlp.experts.down_proj 4x64x128 expert keep`},
	{"experts of few rows", `{"model_type":"llama4_text","hidden_size":64}`, `
		model.layers.0.feed_forward.experts.gate_up_proj 4x64x16 expert keep T e4`},
}
