package arch

import "slices"

// Mixer is the part of a layer that lets a token see the tokens before it.
type Mixer uint8

const (
	AttentionMixer Mixer = iota
	// ShortConvMixer is a gated convolution over the last few tokens (LFM2).
	ShortConvMixer
	// DeltaNetMixer is a gated delta net (Yang et al., Gated Delta Networks, arXiv:2412.06464).
	DeltaNetMixer
)

// Kinds of tensors of layers with states.
const (
	ConvIn     Kind = 100 + iota // of a short convolution: both gates and the inputs
	ConvKernel                   // of a convolution of each channel for itself
	ConvOut
	DeltaQKV // queries, keys and values of a delta net
	DeltaZ   // the gate of its outputs
	DeltaB   // how much of a value is learned
	DeltaA   // how much of the state stays
	DeltaQKVZ
	DeltaBA
	DeltaConv
	DeltaDecay // the logarithm of a factor of each head's decay
	DeltaBias  // of DeltaA
	DeltaNorm
	DeltaOut
)

// ShortConvConfig describes short convolutions. Their channels are the hidden states.
type ShortConvConfig struct {
	Kernel int // number of tokens, with the current token
}

// DeltaNetConfig describes gated delta nets. KeyHeads divides ValueHeads: a head of keys, with its
// queries, serves neighbouring heads of values.
type DeltaNetConfig struct {
	Kernel               int // of the convolution, in tokens
	KeyHeads, ValueHeads int
	KeyDim, ValueDim     int // of a head
}

// Channels is the number of channels of the convolution: queries, keys and values.
func (d *DeltaNetConfig) Channels() int { return 2*d.KeyHeads*d.KeyDim + d.Inner() }

// Inner is the number of values.
func (d *DeltaNetConfig) Inner() int { return d.ValueHeads * d.ValueDim }

// uses reports whether a layer with the mixer has tensors of a kind. ok is false for kinds that
// belong to no mixer.
func (m Mixer) uses(kind Kind) (used, ok bool) {
	switch {
	case kind >= DeltaQKV:
		return m == DeltaNetMixer, true
	case kind >= ConvIn:
		return m == ShortConvMixer, true
	case slices.Contains([]Kind{Query, Key, Value, FusedQKV, Output, QueryNorm, KeyNorm}, kind):
		return m == AttentionMixer, true
	}
	return false, false
}

// States reports whether the layer has a state in place of keys and values.
func (l *LayerConfig) States() bool { return l.Mixer != AttentionMixer }

// HasStates reports whether any layer has a state in place of keys and values.
func (c *ForwardConfig) HasStates() bool {
	return slices.ContainsFunc(c.Layers, func(l LayerConfig) bool { return l.States() })
}

// AttentionPeriod returns n if each n-th layer has attention and all others have a state, else 0.
func (c *ForwardConfig) AttentionPeriod() int {
	for n := 1; n <= len(c.Layers); n++ {
		same := true
		for i := range c.Layers {
			same = same && c.Layers[i].States() == ((i+1)%n != 0)
		}
		if same {
			return n
		}
	}
	return 0
}

// mixers reads layer_types, in which name stands for layers with a mixer. Without the key, full
// decides which layers have attention.
func (k *keys) mixers(c *ForwardConfig, name string, mixer Mixer, full func(i int) bool) {
	types := read(k, "layer_types", []string(nil), "is not a list of strings")
	if types != nil && len(types) != len(c.Layers) {
		k.fail("layer_types", "has %d entries for %d layers", len(types), len(c.Layers))
		return
	}
	for i := range c.Layers {
		attends := types == nil && full(i)
		if types != nil {
			if attends = types[i] == "full_attention"; !attends && types[i] != name {
				k.fail("layer_types", "has %q: this forward pass knows full_attention and %s", types[i], name)
			}
		}
		if !attends {
			c.Layers[i].Mixer = mixer
		}
	}
}

// deltaNet reads the keys of gated delta nets and of the attention in between.
func (k *keys) deltaNet(c *ForwardConfig) {
	c.DeltaNet = &DeltaNetConfig{
		Kernel: k.size("linear_conv_kernel_dim", 4), KeyHeads: k.size("linear_num_key_heads", 16), ValueHeads: k.size("linear_num_value_heads", 32),
		KeyDim: k.size("linear_key_head_dim", 128), ValueDim: k.size("linear_value_head_dim", 128),
	}
	period := k.size("full_attention_interval", 4)
	k.mixers(c, "linear_attention", DeltaNetMixer, func(i int) bool { return (i+1)%max(1, period) == 0 })
	c.AttentionGate, c.PlusOne, c.QKNorm = true, true, HeadNorms
}
