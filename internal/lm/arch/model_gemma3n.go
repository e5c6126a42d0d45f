package arch

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

var _ = register("gemma3n_text", Facts{
	Title: "Gemma 3n (text)", Class: "Gemma3nForCausalLM", tied: true,
	Layer: join(allNorms, separateAttention, queryKeyNorms, separateMLP, perLayerInputs, []Naming{
		{StreamNorm, "altup.router_norm", "altup_router_norm"},
		{StreamRouter, "altup.modality_router", "altup_router"},
		{StreamPredict, "altup.prediction_coefs", "altup_predict_coef"},
		{StreamCorrect, "altup.correction_coefs", "altup_correct_coef"},
		{StreamScale, "altup.correct_output_scale", "altup_correct_scale.weight"},
		{LaurelLeft, "laurel.linear_left", "laurel_l"},
		{LaurelRight, "laurel.linear_right", "laurel_r"},
		{LaurelNorm, "laurel.post_laurel_norm", "laurel_post_norm"},
	}),
	Outer: join(perLayerModel, []Naming{
		{StreamProjections, "altup_projections.*", "altup_proj"},
		{StreamOutputs, "altup_unembed_projections.*", "altup_unembd_proj"},
	}),
	LlamaCpp: &LlamaCpp{Name: "gemma3n", Windows: UsedWindow, Period: 5, SharesKeys: true, CopiesKeys: true, Check: checkGemma3n, Config: func(m Metadata) map[string]any {
		n := m.Count("block_count", -1)
		sparsity := slices.Concat(slices.Repeat([]json.Number{"0.95"}, min(n, gemma3nSparse)), slices.Repeat([]json.Number{"0.0"}, max(0, n-gemma3nSparse)))
		return map[string]any{
			"hidden_activation": "gelu_pytorch_tanh", "activation_sparsity_pattern": sparsity, "final_logit_softcapping": m.Positive("final_logit_softcapping", 30),
			"rope_local_base_freq":        m.Positive("rope.freq_base_swa", 10000),
			"num_kv_shared_layers":        max(0, n-gemma3nOwnKeys),
			"hidden_size_per_layer_input": 256, "altup_num_inputs": 4, "laurel_rank": 64,
		}
	}},
	vocab: 262400,
	read: func(k *keys, c *ForwardConfig) {
		k.readGemmaUnit(c, 2)
		k.widths(c, 16384)
		c.LogitSoftcap = k.softcap("final_logit_softcapping", 30)
		k.slidingLayers(c, k.window(512), func(i int) bool { return (i+1)%5 != 0 })
		k.layerPositions(c, 32768, ropeDefaults{theta: 1e6, thetaKey: "rope_theta"}, ropeDefaults{theta: 10000, thetaKey: "rope_local_base_freq"})
		k.borrow(c, 15)
		k.size("hidden_size_per_layer_input", 256) // not 0
		only(k, "altup_active_idx", 0, "is not an integer")
		c.AltUp = &AltUpConfig{Streams: k.size("altup_num_inputs", 4), Scaled: k.boolean("altup_correct_scale", true)}
		c.Laurel = k.size("laurel_rank", 64)
		k.irrelevant("altup_coef_clip", "altup_lr_multiplier", "query_pre_attn_scalar") // of training
		k.sparsity(c)
	},
})

var _ = registerMultimodal("gemma3n", nesting{class: "Gemma3nForConditionalGeneration", text: "gemma3n_text", irrelevant: gemmaInputs})

// gemmaInputs are keys about images and sound in Gemma 3n and 4.
var gemmaInputs = []string{"text_config", "vision_config", "audio_config", "audio_soft_tokens_per_image", "vision_soft_tokens_per_image", "audio_token_id", "image_token_id",
	"video_token_id", "boa_token_id", "boi_token_id", "eoa_token_id", "eoa_token_index", "eoi_token_id"}

// readGemmaUnit reads the keys that Gemma 3n and Gemma 4 share: queries, keys and values are
// normalized, products of queries and keys have no factor, and layers have inputs of their own.
func (k *keys) readGemmaUnit(c *ForwardConfig, kvHeads int) {
	k.readHeads(c, 8, kvHeads, 256, 1e-6)
	c.Activation = "gelu_pytorch_tanh"
	only(k, "hidden_activation", c.Activation, "is not a string")
	k.attentionBias(c)
	c.QKNorm, c.UnitValues, c.AttentionScale = HeadNorms, true, 1
	c.EmbeddingScale = math.Sqrt(float64(c.HiddenSize))
	c.PerLayer = &PerLayerConfig{Vocab: k.size("vocab_size_per_layer_input", 262144), Width: k.count("hidden_size_per_layer_input", 256)}
}

// widths reads intermediate_size, a number or a list with a number for each layer.
func (k *keys) widths(c *ForwardConfig, absent int) {
	if raw := k.keys["intermediate_size"]; len(raw) == 0 || raw[0] != '[' {
		c.Intermediate = k.size("intermediate_size", absent)
		return
	}
	for i, n := range byLayer(k, c, "intermediate_size", []int{}, "is not a list of integers") {
		if n < 1 || n > math.MaxInt32 {
			k.fail("intermediate_size", "has %d: positive integers were expected", n)
		}
		c.Layers[i].Intermediate, c.Intermediate = n, max(c.Intermediate, n)
	}
}

// sparsity reads the share of gates that are zero in each layer.
func (k *keys) sparsity(c *ForwardConfig) {
	list := byLayer(k, c, "activation_sparsity_pattern", []float64(nil), "is not a list of numbers")
	if list == nil {
		list = make([]float64, len(c.Layers))
		for i := range min(10, len(list)) * min(1, len(list)/11) {
			list[i] = 0.95
		}
	}
	for i, p := range list {
		if !(p >= 0 && p < 1) {
			k.fail("activation_sparsity_pattern", "has %v: numbers from 0 to below 1 were expected", p)
			return
		}
		c.Layers[i].Sparse = p > 0
		if p > 0 {
			c.Layers[i].Cutoff = quantile(float64(float32(p)))
		}
	}
}

// Numbers of layers that llama.cpp has in its code: of those with keys and values of their own, and
// of those with 95 % of gates that are zero.
const gemma3nOwnKeys, gemma3nSparse = 20, 10

func checkGemma3n(c *ForwardConfig) string {
	for i, l := range c.Layers {
		if (l.Borrow > 0) != (i >= gemma3nOwnKeys) || l.Sparse != (i < gemma3nSparse) || l.Sparse && l.Cutoff != quantile(float64(float32(0.95))) || l.Intermediate != c.Intermediate {
			return fmt.Sprintf("layers but %d with keys of their own, and %d with an activation_sparsity_pattern of 0.95, all of one intermediate_size: layer %d differs", gemma3nOwnKeys, gemma3nSparse, i)
		}
	}
	if c.PerLayer.Width != 256 || c.AltUp.Streams != 4 || !c.AltUp.Scaled || c.Laurel != 64 || c.LogitSoftcap != 30 {
		return "other values than 256 for hidden_size_per_layer_input, 4 for altup_num_inputs, 64 for laurel_rank, 30 for final_logit_softcapping and true for altup_correct_scale"
	}
	return ""
}
