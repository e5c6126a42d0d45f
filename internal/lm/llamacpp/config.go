package llamacpp

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// Limits of llama.cpp (src/llama-hparams.h).
const (
	maxLayers  = 512
	maxExperts = 1024
)

// latentEps is what norms of latents add to the mean square, whatever config.json says.
const latentEps = 1e-6

// set adds a key of the architecture.
func (m *Model) set(key string, value any) {
	if n, ok := value.(int); ok {
		value = uint32(n)
	}
	m.Metadata = append(m.Metadata, gguf.Pair{Key: strings.Replace(key, "ARCH", m.Architecture, 1), Value: value})
}

func (m *Model) note(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}

// describeConfig writes the keys of the architecture, and refuses models that llama.cpp would
// compute otherwise.
func (m *Model) describeConfig(f *family, c *arch.ForwardConfig) error {
	if err := f.check(c); err != nil {
		return err
	}
	m.set(keyVocabSize, c.VocabSize)
	m.set(keyBlockCount, len(c.Layers))
	m.set(keyContextLength, c.MaxPositions)
	m.set(keyEmbeddingLength, c.HiddenSize)
	if f.Varied {
		m.set(keyFeedForward, layered(c, func(l *arch.LayerConfig) int { return width(c, l) }))
	} else {
		m.set(keyFeedForward, c.Intermediate)
	}
	m.set(keyHeads, c.Heads)
	m.describeStates(c)
	if a := c.Latent; a != nil {
		key, value := c.HeadDim, a.Value
		if f.SplitLatents { // all heads read the latents themselves
			m.set(keyKeyLengthMLA, key)
			m.set("ARCH.attention.value_length_mla", value)
			key, value = a.KeyRank+a.Rope, a.KeyRank
		}
		m.set(keyKeyLength, key)
		m.set(keyValueLength, value)
		m.set("ARCH.attention.kv_lora_rank", a.KeyRank)
		if a.QueryRank > 0 {
			m.set("ARCH.attention.q_lora_rank", a.QueryRank)
		}
		if c.NormEps != latentEps {
			m.note("llama.cpp's %s adds %g, not %g, to the mean squares of latents", f.Name, c.NormEps, latentEps)
		}
	} else {
		n := c.Layers[len(c.Layers)-1].HeadDim
		m.set(keyKeyLength, n)
		m.set(keyValueLength, n)
	}
	if f.SharesKeys {
		m.set(keyPerLayerWidth, cmp.Or(c.PerLayer, &arch.PerLayerConfig{}).Width)
		m.set(keySharedKeys, len(c.Layers)-withKeys(c))
		m.set(keyWindowKeyLength, c.HeadDim)
		m.set(keyWindowValues, c.HeadDim)
		m.set(keyWindowRopeDims, c.Ropes[1].Dims)
	}
	if c.LayerNorm || f.NormKeys {
		m.set(keyLayerNormEps, float32(c.NormEps))
	}
	if !c.LayerNorm {
		m.set(keyNormEps, float32(c.NormEps))
	}
	if f.LogitScale {
		m.set(keyLogitScale, float32(c.LogitScale))
	}
	if mixtures(c) {
		m.describeExperts(f, c)
	}
	if f.Scales {
		m.set(keyEmbeddingScale, float32(c.EmbeddingScale))
		m.set(keyResidualScale, float32(c.ResidualScale))
		m.set(keyAttentionScale, float32(c.AttentionScale))
		m.set(keyLogitScale, float32(1/c.LogitScale))
	}
	if c.AttentionSoftcap != 0 {
		m.set("ARCH.attn_logit_softcapping", float32(c.AttentionSoftcap))
	}
	if c.LogitSoftcap != 0 {
		m.set(keyLogitCap, float32(c.LogitSoftcap))
	}
	if err := m.describeWindows(f, c); err != nil {
		return err
	}
	return m.describeRope(f, c)
}

// describeStates writes the heads of keys and values of each layer: layers with a state have none.
func (m *Model) describeStates(c *arch.ForwardConfig) {
	describe := func(taps, state, keyHeads, heads, inner int) {
		m.set(keyDeltaTaps, taps)
		m.set(keyDeltaState, state)
		m.set(keyDeltaKeyHeads, keyHeads)
		m.set(keyDeltaHeads, heads)
		m.set(keyDeltaInner, inner)
	}
	if d := c.DeltaNet; d != nil && !d.ChannelDecay {
		m.set(keyKVHeads, c.KVHeads)
		describe(d.Kernel, d.KeyDim, d.KeyHeads, d.ValueHeads, d.Inner())
		m.set("ARCH.full_attention_interval", c.AttentionPeriod())
		return
	}
	m.set(keyKVHeads, layered(c, func(l *arch.LayerConfig) int {
		switch {
		case l.Mixer != arch.AttentionMixer && !l.Beside:
			return 0
		case c.DeltaNet != nil: // the latents
			return 1
		}
		return l.KVHeads
	}))
	if d := c.DeltaNet; d != nil {
		m.set(keyDeltaTaps, d.Kernel)
		m.set("ARCH.kda.head_dim", d.KeyDim)
	}
	if c.ShortConv != nil {
		m.set("ARCH.shortconv.l_cache", c.ShortConv.Kernel)
	}
	if d := c.Mamba; d != nil {
		describe(d.Kernel, d.State, d.Groups, d.Heads, d.Inner())
	}
}

// withKeys returns the number of layers, all at the start, with keys and values of their own.
func withKeys(c *arch.ForwardConfig) int {
	if i := slices.IndexFunc(c.Layers, func(l arch.LayerConfig) bool { return l.Borrow > 0 }); i >= 0 {
		return i
	}
	return len(c.Layers)
}

// layered returns a number for each layer, or the number of all layers.
func layered(c *arch.ForwardConfig, of func(l *arch.LayerConfig) int) any {
	list := make([]int32, len(c.Layers))
	for i := range list {
		list[i] = int32(of(&c.Layers[i]))
	}
	if slices.Min(list) == slices.Max(list) {
		return int(list[0])
	}
	return list
}

// width returns the width of a layer's feed-forward network, or of its experts in a mixture without
// a dense network.
func width(c *arch.ForwardConfig, l *arch.LayerConfig) int {
	switch {
	case l.NoFeedForward:
		return 0
	case l.Experts && !c.Facts.Has(arch.ExpertsNorm):
		return c.Experts.Intermediate
	}
	return l.Intermediate
}

// mixtures reports whether any layer is a mixture.
func mixtures(c *arch.ForwardConfig) bool {
	return slices.ContainsFunc(c.Layers, func(l arch.LayerConfig) bool { return l.Experts })
}

// check refuses features that llama.cpp's code for the family lacks.
func (f *family) check(c *arch.ForwardConfig) error {
	for _, x := range []struct {
		bad  bool
		what string
	}{
		{len(c.Layers) > maxLayers, fmt.Sprintf("%d layers, more than its limit of %d", len(c.Layers), maxLayers)},
		{f.Square && c.Heads*c.HeadDim != c.HiddenSize, fmt.Sprintf("%d heads of %d with hidden_size %d: it expects hidden_size / heads", c.Heads, c.HeadDim, c.HiddenSize)},
		{f.Ungrouped && c.KVHeads != c.Heads, fmt.Sprintf("%d heads of keys and values for %d of queries (num_key_value_heads)", c.KVHeads, c.Heads)},
		{c.AttentionBias >= arch.QKVBias && f.Bias < arch.QKVBias, "biases of q, k and v"},
		{c.AttentionBias == arch.AllBias && f.Bias < arch.AllBias, "a bias of attention's output (attention_bias)"},
		{c.MLPBias && !f.MLPBias, "biases of the feed-forward network (mlp_bias)"},
		{f.Caps && c.AttentionSoftcap == 0, "attention without a softcap (attn_logit_softcapping null)"},
		{sharedDiffers(c) != "", sharedDiffers(c)},
		{c.PerLayer != nil && c.PerLayer.Vocab > c.VocabSize, "more rows of inputs of single layers than tokens (vocab_size_per_layer_input)"},
		{(f.Caps || f.SharesKeys) && c.LogitSoftcap == 0, "logits without a softcap (final_logit_softcapping null)"},
	} {
		if x.bad {
			return unsupported("llama.cpp's %s does not support %s", f.Name, x.what)
		}
	}
	if f.Check != nil {
		if what := f.Check(c); what != "" {
			return unsupported("llama.cpp's %s does not support %s", f.Name, what)
		}
	}
	if want := f.attentionScale(c); !f.Scales && !f.Multiplied && c.Latent == nil && math.Abs(c.AttentionScale/want-1) > 1e-6 {
		return unsupported("llama.cpp's %s multiplies queries and keys by %.6g in a model of this shape, config.json asks for %.6g (query_pre_attn_scalar)", f.Name, want, c.AttentionScale)
	}
	return f.checkExperts(c)
}

// sharedDiffers returns what differs if layers read keys and values of earlier layers. llama.cpp
// takes the last layer with keys of its own for a layer without a sliding window, and the last but
// one for a layer with a window.
func sharedDiffers(c *arch.ForwardConfig) string {
	for i := withKeys(c); i < len(c.Layers); i++ {
		from := withKeys(c) - 1 - min(c.Layers[i].Window, 1)
		if own := i - c.Layers[i].Borrow; own != from {
			return fmt.Sprintf("keys and values of layer %d in layer %d, only of layer %d (num_kv_shared_layers)", own, i, from)
		}
	}
	return ""
}

// attentionScale returns llama.cpp's factor of queries and keys. llama.cpp recognizes the 27B
// models of Gemma by the number of layers.
func (f *family) attentionScale(c *arch.ForwardConfig) float64 {
	if f.SharesKeys {
		return 1
	}
	if f.WideLayers != 0 && len(c.Layers) == f.WideLayers {
		return 1 / math.Sqrt(float64(c.HiddenSize/c.Heads))
	}
	return 1 / math.Sqrt(float64(c.HeadDim))
}

func (f *family) checkExperts(c *arch.ForwardConfig) error {
	e := c.Experts
	switch {
	case !mixtures(c):
		return nil
	case e.Count > maxExperts:
		return unsupported("llama.cpp does not support %d experts: its limit is %d", e.Count, maxExperts)
	case e.Groups > 1 && !f.Mixture.Groups:
		return unsupported("llama.cpp's %s does not choose as config.json asks, among the experts of the best of %d groups (n_group)", f.Name, e.Groups)
	case e.Scale != 1 && f.Mixture.Weights != arch.WeightKeys:
		return unsupported("llama.cpp's %s does not scale the weights of experts, config.json asks for %v (routed_scaling_factor)", f.Name, e.Scale)
	case !e.Normalize && f.Mixture.Weights == arch.NormalizedWeights:
		return unsupported("llama.cpp's %s always divides the weights of the chosen experts by their sum, but norm_topk_prob is false", f.Name)
	case e.Normalize && f.Mixture.Weights == arch.PlainWeights:
		return unsupported("llama.cpp's %s never divides the weights of the chosen experts by their sum, but norm_topk_prob is true", f.Name)
	}
	dense, step := denseLayers(c), 1
	if f.Mixture.Steps {
		step = dense + 1
	}
	for i, l := range c.Layers {
		switch {
		case step > 1 && l.Experts != ((i+1)%step == 0):
			return unsupported("llama.cpp's %s expects experts in each n-th layer, but layer %d has another network (moe_layers)", f.Name, i)
		case f.Mixture.Dense && l.Experts != (i >= dense):
			return unsupported("llama.cpp's %s expects experts in every layer behind the first %d, but layer %d is dense", f.Name, dense, i)
		case !f.Mixture.Dense && step == 1 && !l.Experts && !l.NoFeedForward:
			return unsupported("llama.cpp's %s expects experts in every layer, but layer %d is dense (mlp_only_layers or decoder_sparse_step)", f.Name, i)
		}
	}
	return nil
}

// denseLayers returns the number of dense layers at the start of a model with mixtures.
func denseLayers(c *arch.ForwardConfig) int {
	return slices.IndexFunc(c.Layers, func(l arch.LayerConfig) bool { return l.Experts })
}

func (m *Model) describeExperts(f *family, c *arch.ForwardConfig) {
	e := c.Experts
	m.set(keyExperts, e.Count)
	m.set("ARCH.expert_used_count", e.PerToken)
	if !f.Mixture.DenseWidth {
		m.set(keyExpertLength, e.Intermediate)
	}
	if e.Shared > 0 {
		m.set(keySharedLength, e.Shared)
		m.set(keySharedCount, e.Shared/e.Intermediate)
	}
	if e.Latent > 0 {
		m.set("ARCH.moe_latent_size", e.Latent)
	}
	if e.Groups > 1 {
		m.set(keyGroups, e.Groups)
		m.set(keyGroupsUsed, e.GroupsPerToken)
	}
	if f.Mixture.Sigmoid {
		m.set(keyGating, gatingSigmoid)
	} else if c.Latent != nil { // llama.cpp's default depends on the shape
		m.set(keyGating, gatingSoftmax)
	}
	if f.Mixture.Weights == arch.WeightKeys {
		m.set("ARCH.expert_weights_norm", e.Normalize)
		m.set("ARCH.expert_weights_scale", float32(e.Scale))
	}
	if f.Mixture.Dense {
		m.set("ARCH.leading_dense_block_count", denseLayers(c))
		m.set(keyMixtureStep, 1)
	}
	if f.Mixture.Steps {
		m.set(keyMixtureStep, denseLayers(c)+1)
	}
}

func (m *Model) describeWindows(f *family, c *arch.ForwardConfig) error {
	window, sliding := 0, 0
	for i, l := range c.Layers {
		if l.Window == 0 {
			continue
		}
		if window != 0 && l.Window != window {
			return unsupported("layer %d has a sliding window of %d, others of %d: llama.cpp has one size", i, l.Window, window)
		}
		window = l.Window
		sliding++
	}
	if f.Windows == arch.WrittenWindow || f.Windows >= arch.UsedWindow && sliding != 0 {
		m.set(keyWindow, window)
	}
	switch {
	case f.Windows == arch.RefusedWindow && (sliding != 0 || len(c.Layers) == f.WindowLayers):
		return unsupported("llama.cpp's %s has sliding windows of its own in models of %d layers, and none in others", f.Name, f.WindowLayers)
	case f.Windows <= arch.WrittenWindow && window != 0 && window < c.MaxPositions:
		m.note("llama.cpp's %s attends to all tokens, not to a sliding window of %d: results differ in texts of more tokens", f.Name, window)
	case f.Windows == arch.ListedWindow:
		if sliding == 0 {
			m.set(keyWindow, c.MaxPositions)
		}
		m.set(keyWindowPattern, layered(c, func(l *arch.LayerConfig) int { return min(l.Window, 1) }))
	case f.Windows == arch.UsedWindow || f.Windows == arch.OptionalWindow && sliding != 0:
		period, ok := windowPeriod(c)
		if !ok {
			return unsupported("llama.cpp expects that every n-th layer has no sliding window, but layer_types has another order")
		}
		if period != f.Period {
			m.set(keyWindowPattern, period)
		}
	}
	return nil
}

// windowPeriod finds n so that each n-th layer has no sliding window and all others do. n is 0 if
// all layers have a window.
func windowPeriod(c *arch.ForwardConfig) (n int, ok bool) {
	for n := range len(c.Layers) + 1 {
		same := true
		for i, l := range c.Layers {
			same = same && hasWindow(i, n) == (l.Window != 0)
		}
		if same {
			return n, true
		}
	}
	return 0, false
}

// hasWindow reports whether layer i has a sliding window if each n-th layer has none, or if all
// have windows (n is 0).
func hasWindow(i, n int) bool { return n == 0 || i%n < n-1 }
