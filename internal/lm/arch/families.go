package arch

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// readCommon reads the keys of all architectures. heads, kvHeads and headDim are the defaults of
// the class; 0 means no default for heads, the number of heads for kvHeads, and hidden_size / heads
// for headDim.
func (k *keys) readCommon(c *ForwardConfig, heads, kvHeads, headDim int, eps float64) {
	k.readHeads(c, heads, kvHeads, headDim, eps)
	c.Intermediate = k.size("intermediate_size", 0)
	only(k, "hidden_act", "silu", "is not a string")
}

// readHeads is readCommon without the width and the activation of feed-forward networks.
func (k *keys) readHeads(c *ForwardConfig, heads, kvHeads, headDim int, eps float64) {
	c.HiddenSize = k.size("hidden_size", 0)
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
	layers := k.size("num_hidden_layers", 0)
	if layers > 1000 {
		k.fail("num_hidden_layers", "is %d: this forward pass takes at most 1000", layers)
		layers = 0
	}
	c.Layers = make([]LayerConfig, layers)
	if c.HeadDim > 0 {
		c.AttentionScale = 1 / math.Sqrt(float64(c.HeadDim))
	}
}

func (k *keys) attentionBias(c *ForwardConfig) { k.biases(c, "attention_bias", false, AllBias) }

// biases reads whether linear layers of attention have biases.
func (k *keys) biases(c *ForwardConfig, key string, absent bool, which AttentionBias) {
	if k.boolean(key, absent) {
		c.AttentionBias = which
	}
}

// positions reads the number of positions, and the rope of all layers.
func (k *keys) positions(c *ForwardConfig, maxPositions int, d ropeDefaults) {
	c.MaxPositions = k.size("max_position_embeddings", maxPositions)
	if d.thetaKey, d.maxPositions = "rope_theta", c.MaxPositions; d.part != 0 {
		part := k.positive("partial_rotary_factor", d.part)
		if in := k.within("rope_parameters"); in != nil { // transformers 5
			part = in.positive("partial_rotary_factor", part)
		}
		if part > 1 {
			k.fail("partial_rotary_factor", "is %v: at most 1 was expected", part)
		}
		d.dims = int(float64(c.HeadDim) * part)
	} else {
		d.dims = cmp.Or(d.dims, c.HeadDim)
	}
	c.Ropes = []RopeConfig{k.readRope(d)}
}

// layerPositions is positions with another rope for layers with a sliding window.
func (k *keys) layerPositions(c *ForwardConfig, maxPositions int, global, local ropeDefaults) {
	c.MaxPositions = k.size("max_position_embeddings", maxPositions)
	for _, d := range []*ropeDefaults{&global, &local} {
		d.dims, d.maxPositions = c.HeadDim, c.MaxPositions
	}
	c.Ropes = k.layerRopes(global, local)
	c.localRopes()
}

// byLayer reads a list with a value for each layer; nil if absent.
func byLayer[T any](k *keys, c *ForwardConfig, key string, absent []T, wrong string) []T {
	list := read(k, key, absent, wrong)
	if list != nil && len(list) != len(c.Layers) {
		k.fail(key, "has %d entries for %d layers", len(list), len(c.Layers))
		return nil
	}
	return list
}

// layerTypes reads layer_types, in which the names stand for layers of another kind than attention
// to all tokens, and calls set for these layers. Without the key, other decides which these are.
func (k *keys) layerTypes(c *ForwardConfig, other func(i int) bool, set func(l *LayerConfig), names ...string) {
	types := byLayer(k, c, "layer_types", []string(nil), "is not a list of strings")
	for i := range c.Layers {
		is := types == nil && other(i)
		if types != nil {
			if is = slices.Contains(names, types[i]); !is && types[i] != "full_attention" && types[i] != "attention" {
				k.fail("layer_types", "has %q: this forward pass knows full_attention and %s", types[i], strings.Join(names, ", "))
			}
		}
		if is {
			set(&c.Layers[i])
		}
	}
}

// slidingLayers reads which layers have a window. Without layer_types, sliding decides.
func (k *keys) slidingLayers(c *ForwardConfig, window int, sliding func(i int) bool) {
	k.layerTypes(c, sliding, func(l *LayerConfig) {
		if l.Window = window; window == 0 {
			k.fail("layer_types", "has sliding layers, but there is no sliding window")
		}
	}, "sliding_attention")
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

// windows gives all layers a sliding window, if there is any.
func (c *ForwardConfig) windows(window int) {
	for i := range c.Layers {
		c.Layers[i].Window = window
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

func (k *keys) readGemma(c *ForwardConfig) {
	k.readHeads(c, 8, 4, 256, 1e-6)
	c.Intermediate = k.size("intermediate_size", 0)
	c.Activation = "gelu_pytorch_tanh"
	only(k, "hidden_activation", c.Activation, "is not a string")
	only(k, "hidden_act", c.Activation, "is not a string") // older files have both keys
	k.never("attention_bias", "use_bidirectional_attention")
	c.PlusOne = true
	c.EmbeddingScale = math.Sqrt(float64(c.HiddenSize))
	c.AttentionScale = 1 / math.Sqrt(k.positive("query_pre_attn_scalar", 256))
}

func siluMetadata(Metadata) map[string]any { return map[string]any{"hidden_act": "silu"} }

// siluBiasMetadata is for models with or without biases of attention.
func siluBiasMetadata(m Metadata) map[string]any {
	return map[string]any{"hidden_act": "silu", "attention_bias": m.HasTensor("blk.0.attn_q.bias")}
}

// predictors reads the number of layers that predict further tokens.
func (k *keys) predictors(c *ForwardConfig) {
	c.Predictors = k.count("num_nextn_predict_layers", k.count("num_mtp_layers", 0))
}

// softcap reads a cap on logits. null means no cap; absent is the default of the class.
func (k *keys) softcap(key string, absent float64) float64 {
	if !k.has(key) && (absent == 0 || k.isNull(key)) {
		return 0
	}
	return k.positive(key, absent)
}

// layerRopes reads the ropes of layers that see all tokens, and of layers with a sliding window. In
// the form before transformers 5, rope_scaling is for the former only.
func (k *keys) layerRopes(global, local ropeDefaults) []RopeConfig {
	if k.has("rope_parameters") {
		in := k.within("rope_parameters")
		ropes := []RopeConfig{in.innerRope("full_attention", global), in.innerRope("sliding_attention", local)}
		k.join(in)
		return ropes
	}
	return []RopeConfig{
		k.readRope(global),
		{Type: "default", Theta: k.positive(local.thetaKey, local.theta), Dims: local.dims, AttentionFactor: 1},
	}
}

// experts makes all layers mixtures, and reads the keys with these defaults. Experts are as wide as
// dense networks, and their weights are divided by their sum.
func (k *keys) experts(c *ForwardConfig, key string, count, perToken int) *ExpertConfig {
	c.expertsFrom(0)
	c.Experts = &ExpertConfig{Count: k.size(key, count), PerToken: k.size("num_experts_per_tok", perToken), Intermediate: c.Intermediate, Normalize: true}
	return c.Experts
}

// qwenExperts reads the keys of Qwen's mixtures, with a shared expert unless shared is 0.
func (k *keys) qwenExperts(c *ForwardConfig, count, perToken, width, shared int, normalize bool) {
	e := k.experts(c, "num_experts", count, perToken)
	e.Intermediate, e.Normalize = k.size("moe_intermediate_size", width), k.boolean("norm_topk_prob", normalize)
	if shared > 0 {
		e.Shared = k.size("shared_expert_intermediate_size", shared)
	}
	k.sparseLayers(c)
}

// expertsFrom makes the layers from first on mixtures.
func (c *ForwardConfig) expertsFrom(first int) {
	for i := range c.Layers {
		c.Layers[i].Experts = i >= first
	}
}

// localRopes gives the layers with a sliding window the second rope.
func (c *ForwardConfig) localRopes() {
	for i := range c.Layers {
		if c.Layers[i].Window != 0 {
			c.Layers[i].Rope = 1
		}
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

// borrow reads how many of the last layers read the keys and values of the last earlier layer of
// their own kind.
func (k *keys) borrow(c *ForwardConfig, absent int) {
	first := len(c.Layers) - k.count("num_kv_shared_layers", absent)
	if first < 0 {
		k.fail("num_kv_shared_layers", "is %d of %d layers", len(c.Layers)-first, len(c.Layers))
	}
	for i := max(0, first); i < len(c.Layers); i++ {
		from := first - 1
		for from >= 0 && c.Layers[from].Window != c.Layers[i].Window {
			from--
		}
		if from < 0 {
			k.fail("num_kv_shared_layers", "is %d: no layer before these has keys and values for layer %d", len(c.Layers)-first, i)
			return
		}
		c.Layers[i].Borrow = i - from
	}
}
