package llamacpp

import (
	"fmt"
	"math"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/model/arch"
)

// Limits of llama.cpp (src/llama-hparams.h).
const (
	maxLayers  = 512
	maxExperts = 1024
)

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
	m.set(keyFeedForward, c.Intermediate)
	m.set(keyHeads, c.Heads)
	m.set(keyKVHeads, c.KVHeads)
	m.set(keyKeyLength, c.HeadDim)
	m.set(keyValueLength, c.HeadDim)
	m.set(keyNormEps, float32(c.NormEps))
	if e := c.Experts; e != nil {
		m.set(keyExperts, e.Count)
		m.set(keyExpertsUsed, e.PerToken)
		if e.Intermediate != c.Intermediate {
			m.set(keyExpertLength, e.Intermediate)
		}
	}
	if c.AttentionSoftcap != 0 {
		m.set(keyAttentionCap, float32(c.AttentionSoftcap))
	}
	if c.LogitSoftcap != 0 {
		m.set(keyLogitCap, float32(c.LogitSoftcap))
	}
	if err := m.describeWindows(f, c); err != nil {
		return err
	}
	return m.describeRope(f, c)
}

// check refuses features that llama.cpp's code for the family lacks.
func (f *family) check(c *arch.ForwardConfig) error {
	for _, x := range []struct {
		bad  bool
		what string
	}{
		{len(c.Layers) > maxLayers, fmt.Sprintf("%d layers, more than its limit of %d", len(c.Layers), maxLayers)},
		{f.square && c.Heads*c.HeadDim != c.HiddenSize, fmt.Sprintf("%d heads of %d with hidden_size %d: it expects hidden_size / heads", c.Heads, c.HeadDim, c.HiddenSize)},
		{c.QKVBias && !f.qkvBias, "biases of q, k and v"},
		{c.OutBias && !f.outBias, "a bias of attention's output (attention_bias)"},
		{c.MLPBias && !f.mlpBias, "biases of the feed-forward network (mlp_bias)"},
		{f.caps && c.AttentionSoftcap == 0, "attention without a softcap (attn_logit_softcapping null)"},
		{f.caps && c.LogitSoftcap == 0, "logits without a softcap (final_logit_softcapping null)"},
	} {
		if x.bad {
			return unsupported("llama.cpp's %s does not support %s", f.name, x.what)
		}
	}
	if want := f.attentionScale(c); math.Abs(c.AttentionScale/want-1) > 1e-6 {
		return unsupported("llama.cpp's %s multiplies queries and keys by %.6g in a model of this shape, config.json asks for %.6g (query_pre_attn_scalar)", f.name, want, c.AttentionScale)
	}
	return f.checkExperts(c)
}

// attentionScale returns the factor of queries and keys that llama.cpp computes with. It recognizes
// the 27B models of Gemma by the number of layers.
func (f *family) attentionScale(c *arch.ForwardConfig) float64 {
	if f.wideLayers != 0 && len(c.Layers) == f.wideLayers {
		return 1 / math.Sqrt(float64(c.HiddenSize/c.Heads))
	}
	return 1 / math.Sqrt(float64(c.HeadDim))
}

func (f *family) checkExperts(c *arch.ForwardConfig) error {
	e := c.Experts
	if e == nil {
		return nil
	}
	if e.Count > maxExperts {
		return unsupported("llama.cpp does not support %d experts: its limit is %d", e.Count, maxExperts)
	}
	if !e.Normalize {
		return unsupported("llama.cpp's %s always divides the weights of the chosen experts by their sum, but norm_topk_prob is false", f.name)
	}
	for i, l := range c.Layers {
		if !l.Experts {
			return unsupported("llama.cpp's %s expects experts in every layer, but layer %d is dense (mlp_only_layers or decoder_sparse_step)", f.name, i)
		}
	}
	return nil
}

// describeWindows writes the sliding window and its pattern of layers.
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
	if !f.windows {
		if f.writesWindow {
			m.set(keyWindow, window)
		}
		if window != 0 && window < c.MaxPositions {
			m.note("llama.cpp's %s attends to all tokens, not to a sliding window of %d: results differ in texts of more tokens", f.name, window)
		}
		return nil
	}
	if sliding != 0 {
		m.set(keyWindow, window)
	}
	if sliding == 0 && f.noWindowKey {
		return nil
	}
	period, ok := windowPeriod(c)
	if !ok {
		return unsupported("llama.cpp expects that every n-th layer has no sliding window, but layer_types has another order")
	}
	if period != f.period {
		m.set(keyWindowPattern, period)
	}
	return nil
}

// windowPeriod finds n so that each n-th layer has no sliding window and all others have one. n is 0
// if all layers have one.
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

// hasWindow reports whether layer i has a sliding window if each n-th layer has none, or if all have one
// (n is 0).
func hasWindow(i, n int) bool { return n == 0 || i%n < n-1 }
