package arch

import (
	"cmp"
	"math"
	"slices"
)

// readCommon reads the keys of all architectures. heads, kvHeads and headDim are the defaults of
// the class; 0 means no default for heads, the number of heads for kvHeads, and hidden_size / heads
// for headDim.
func (k *keys) readCommon(c *ForwardConfig, heads, kvHeads, headDim int, eps float64) {
	c.HiddenSize = k.size("hidden_size", 0)
	c.Intermediate = k.size("intermediate_size", 0)
	c.Heads = k.size("num_attention_heads", heads)
	kvHeads = cmp.Or(kvHeads, c.Heads)
	c.KVHeads = k.size("num_key_value_heads", kvHeads)
	if headDim == 0 && c.Heads != 0 {
		if headDim = c.HiddenSize / c.Heads; headDim*c.Heads != c.HiddenSize && !k.has("head_dim") {
			k.fail("hidden_size", "is %d, not a multiple of the %d heads, and head_dim is missing", c.HiddenSize, c.Heads)
			return
		}
	}
	c.HeadDim = k.size("head_dim", max(1, headDim))
	c.NormEps = k.positive("rms_norm_eps", eps)
	c.Layers = make([]LayerConfig, k.layers())
	if c.HeadDim > 0 {
		c.AttentionScale = 1 / math.Sqrt(float64(c.HeadDim))
	}
}

// layers reads the number of layers. More than a thousand layers are taken for damage.
func (k *keys) layers() int {
	n := k.size("num_hidden_layers", 0)
	if n > 1000 {
		k.fail("num_hidden_layers", "is %d: this forward pass takes at most 1000", n)
		return 0
	}
	return n
}

func (k *keys) silu() { only(k, "hidden_act", "silu", "is not a string") }

func (k *keys) attentionBias(c *ForwardConfig) {
	if k.boolean("attention_bias", false) {
		c.AttentionBias = AllBias
	}
}

func (k *keys) positions(c *ForwardConfig, maxPositions int, theta float64) {
	c.MaxPositions = k.size("max_position_embeddings", maxPositions)
	c.Ropes = []RopeConfig{k.readRope(ropeDefaults{theta: theta, thetaKey: "rope_theta", dims: c.HeadDim, maxPositions: c.MaxPositions})}
}

// slidingLayers reads layer_types. Without the key, sliding decides which layers have a window.
func (k *keys) slidingLayers(c *ForwardConfig, window int, sliding func(i int) bool) {
	types := read(k, "layer_types", []string(nil), "is not a list of strings")
	if types != nil && len(types) != len(c.Layers) {
		k.fail("layer_types", "has %d entries for %d layers", len(types), len(c.Layers))
		return
	}
	for i := range c.Layers {
		slides := types == nil && sliding(i)
		if types != nil {
			switch types[i] {
			case "sliding_attention":
				slides = true
			case "full_attention":
			default:
				k.fail("layer_types", "has %q: this forward pass knows full_attention and sliding_attention", types[i])
			}
		}
		if !slides {
			continue
		}
		if window == 0 {
			k.fail("layer_types", "has sliding layers, but there is no sliding window")
		}
		c.Layers[i].Window = window
	}
}

func readLlama(k *keys, c *ForwardConfig) {
	k.readCommon(c, 0, 0, 0, 1e-6)
	k.positions(c, 2048, 10000)
	k.silu()
	k.attentionBias(c)
	c.MLPBias = k.boolean("mlp_bias", false)
}

func readMistral(k *keys, c *ForwardConfig) {
	k.readCommon(c, 0, 8, 0, 1e-6)
	k.positions(c, 4096*32, 10000)
	k.silu()
	k.never("attention_bias", "mlp_bias")
	window := k.window(4096)
	for i := range c.Layers {
		c.Layers[i].Window = window
	}
}

// window reads sliding_window. null means no window; absent is the default of the class.
func (k *keys) window(absent int) int {
	if !k.has("sliding_window") {
		if k.isNull("sliding_window") {
			return 0
		}
		return absent
	}
	return k.size("sliding_window", absent)
}

func readMixtral(k *keys, c *ForwardConfig) {
	k.readCommon(c, 0, 8, 0, 1e-5)
	k.positions(c, 4096*32, 1e6)
	k.silu()
	k.never("attention_bias", "mlp_bias")
	k.irrelevant("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
	window := k.window(0)
	c.Experts = &ExpertConfig{
		Count: k.size("num_local_experts", 8), PerToken: k.size("num_experts_per_tok", 2), Intermediate: c.Intermediate, Normalize: true,
		Module: "block_sparse_moe", Gate: "w1", Up: "w3", Down: "w2",
	}
	for i := range c.Layers {
		c.Layers[i] = LayerConfig{Window: window, Experts: true}
	}
}

// qwenWindows reads the sliding window of Qwen2 and Qwen3 for the layers from max_window_layers on.
func (k *keys) qwenWindows(c *ForwardConfig) {
	window := k.window(4096)
	if !k.boolean("use_sliding_window", false) {
		window = 0
	}
	first := k.count("max_window_layers", 28)
	k.slidingLayers(c, window, func(i int) bool { return window != 0 && i >= first })
}

func readQwen2(k *keys, c *ForwardConfig) {
	k.readCommon(c, 0, 32, 0, 1e-6)
	k.positions(c, 32768, 10000)
	k.silu()
	k.never("mlp_bias", "use_mrope")
	only(k, "attention_bias", true, "is neither true nor false")
	c.AttentionBias = QKVBias
	k.qwenWindows(c)
}

func readQwen3(k *keys, c *ForwardConfig) {
	k.readCommon(c, 0, 32, 128, 1e-6)
	k.positions(c, 32768, 10000)
	k.silu()
	k.never("mlp_bias")
	k.attentionBias(c)
	c.QKNorm = true
	k.qwenWindows(c)
}

func readQwen3Moe(k *keys, c *ForwardConfig) {
	k.readCommon(c, 0, 4, 0, 1e-6)
	k.positions(c, 32768, 10000)
	k.silu()
	k.never("mlp_bias")
	k.attentionBias(c)
	c.QKNorm = true
	k.never("use_sliding_window") // implementations disagree on the layers
	k.irrelevant("sliding_window", "max_window_layers", "output_router_logits", "router_aux_loss_coef")
	k.slidingLayers(c, 0, func(int) bool { return false })
	c.Experts = &ExpertConfig{
		Count: k.size("num_experts", 128), PerToken: k.size("num_experts_per_tok", 8), Intermediate: k.size("moe_intermediate_size", 768),
		Normalize: k.boolean("norm_topk_prob", false), Module: "mlp", Gate: "gate_proj", Up: "up_proj", Down: "down_proj",
	}
	step := k.size("decoder_sparse_step", 1)
	dense := read(k, "mlp_only_layers", []int(nil), "is not a list of integers")
	for i := range c.Layers {
		c.Layers[i].Experts = (i+1)%max(1, step) == 0 && !slices.Contains(dense, i)
	}
}

func (k *keys) readGemma(c *ForwardConfig, maxPositions int) {
	k.readCommon(c, 8, 4, 256, 1e-6)
	c.MaxPositions = k.size("max_position_embeddings", maxPositions)
	c.Activation = "gelu_pytorch_tanh"
	only(k, "hidden_activation", c.Activation, "is not a string")
	only(k, "hidden_act", c.Activation, "is not a string") // older files have both keys
	k.never("attention_bias", "use_bidirectional_attention")
	c.Norms = GemmaNorms
	c.EmbeddingScale = math.Sqrt(float64(c.HiddenSize))
	c.AttentionScale = 1 / math.Sqrt(k.positive("query_pre_attn_scalar", 256))
}

func readGemma2(k *keys, c *ForwardConfig) {
	k.readGemma(c, 8192)
	c.Ropes = []RopeConfig{k.readRope(ropeDefaults{theta: 10000, thetaKey: "rope_theta", dims: c.HeadDim, maxPositions: c.MaxPositions})}
	c.AttentionSoftcap = k.softcap("attn_logit_softcapping", 50)
	c.LogitSoftcap = k.softcap("final_logit_softcapping", 30)
	k.slidingLayers(c, k.window(4096), func(i int) bool { return i%2 == 0 })
}

// softcap reads a cap on logits. null means no cap; absent is the default of the class.
func (k *keys) softcap(key string, absent float64) float64 {
	if !k.has(key) && (absent == 0 || k.isNull(key)) {
		return 0
	}
	return k.positive(key, absent)
}

func readGemma3(k *keys, c *ForwardConfig) {
	k.readGemma(c, 131072)
	c.QKNorm = true
	if k.has("attn_logit_softcapping") {
		k.fail("attn_logit_softcapping", "is %s: Gemma 3 has none", k.keys["attn_logit_softcapping"])
	}
	c.LogitSoftcap = k.softcap("final_logit_softcapping", 0)
	pattern := k.size("sliding_window_pattern", k.size("_sliding_window_pattern", 6))
	k.slidingLayers(c, k.window(4096), func(i int) bool { return (i+1)%max(1, pattern) != 0 })
	c.Ropes = k.gemma3Ropes(c)
	for i := range c.Layers {
		if c.Layers[i].Window != 0 {
			c.Layers[i].Rope = 1
		}
	}
}

// gemma3Ropes reads the ropes of global layers and of local layers. The local rope is never scaled.
func (k *keys) gemma3Ropes(c *ForwardConfig) []RopeConfig {
	global := ropeDefaults{theta: 1e6, thetaKey: "rope_theta", dims: c.HeadDim, maxPositions: c.MaxPositions}
	local := ropeDefaults{theta: 10000, thetaKey: "rope_local_base_freq", dims: c.HeadDim, maxPositions: c.MaxPositions}
	if k.has("rope_parameters") {
		in := k.within("rope_parameters")
		ropes := []RopeConfig{in.innerRope("full_attention", global), in.innerRope("sliding_attention", local)}
		k.join(in)
		return ropes
	}
	return []RopeConfig{
		k.readRope(global),
		{Type: "default", Theta: k.positive(local.thetaKey, local.theta), Dims: c.HeadDim, AttentionFactor: 1},
	}
}

// innerRope reads a rope of several in the form of transformers 5.
func (k *keys) innerRope(key string, d ropeDefaults) RopeConfig {
	in := k.within(key)
	if in == nil {
		k.fail(key, "is missing")
		return RopeConfig{}
	}
	r := in.readScaling(d)
	k.join(in)
	return r
}

func readPhi3(k *keys, c *ForwardConfig) {
	k.readCommon(c, 0, 0, 0, 1e-5)
	k.silu()
	k.never("attention_bias", "mlp_bias", "lm_head_bias")
	only(k, "full_attn_mod", 1, "is not an integer")
	only(k, "interpolate_factor", 1, "is not an integer")
	c.Fused = true
	c.MaxPositions = k.size("max_position_embeddings", 4096)
	part := k.positive("partial_rotary_factor", 1)
	if in := k.within("rope_parameters"); in != nil { // transformers 5
		part = in.positive("partial_rotary_factor", part)
	}
	d := ropeDefaults{theta: 10000, thetaKey: "rope_theta", dims: int(float64(c.HeadDim) * part), maxPositions: c.MaxPositions, partial: true}
	d.originalPositions = k.size("original_max_position_embeddings", 4096)
	if part > 1 {
		k.fail("partial_rotary_factor", "is %v: at most 1 was expected", part)
	}
	c.Ropes = []RopeConfig{k.readRope(d)}
	window := k.window(0)
	for i := range c.Layers {
		c.Layers[i].Window = window
	}
}

func readSmolLM3(k *keys, c *ForwardConfig) {
	k.readCommon(c, 16, 4, 0, 1e-6)
	k.positions(c, 32768, 2e6)
	k.silu()
	k.attentionBias(c)
	c.MLPBias = k.boolean("mlp_bias", false)
	// An entry of no_rope_layers is 1 if the layer has a rope.
	interval := k.size("no_rope_layer_interval", 4)
	turns := read(k, "no_rope_layers", []int(nil), "is not a list of integers")
	if turns != nil && len(turns) != len(c.Layers) {
		k.fail("no_rope_layers", "has %d entries for %d layers", len(turns), len(c.Layers))
		return
	}
	for i := range c.Layers {
		if turns == nil && (i+1)%max(1, interval) == 0 || turns != nil && turns[i] == 0 {
			c.Layers[i].Rope = -1
		}
	}
	window := k.window(0)
	if !k.boolean("use_sliding_window", false) {
		window = 0
	}
	k.irrelevant("max_window_layers")
	k.slidingLayers(c, window, func(i int) bool { return window != 0 && c.Layers[i].Rope < 0 })
}
