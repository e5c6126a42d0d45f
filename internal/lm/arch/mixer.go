package arch

import (
	"math"
	"slices"
)

// Mixer is the part of a layer that lets a token see the tokens before it.
type Mixer uint8

const (
	AttentionMixer Mixer = iota
	// ShortConvMixer is a gated convolution over the last few tokens (LFM2).
	ShortConvMixer
	// DeltaNetMixer is a gated delta net (Yang et al., Gated Delta Networks, arXiv:2412.06464).
	DeltaNetMixer
	// MambaMixer is a selective state space (Dao and Gu, Mamba-2, arXiv:2405.21060).
	MambaMixer
	// NoMixer: the layer is a feed-forward network alone.
	NoMixer
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
	// Of a delta net with a decay of each channel. The gates come from latents.
	DeltaQuery
	DeltaKey
	DeltaValue
	DeltaForgetDown
	DeltaForgetUp
	DeltaGateDown
	DeltaGateUp
	DeltaConvQuery
	DeltaConvKey
	DeltaConvValue
	MambaIn // of a state space: gates, inputs, B, C and time steps
	MambaConv
	MambaDecay // the logarithm of a factor of each head's decay
	MambaSkip  // of each head, the factor of its inputs in its outputs
	MambaBias  // of the time steps
	MambaNorm
	MambaOut
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
	// ChannelDecay: each channel of the keys has a decay of its own, and sigmoids are the gates of
	// the outputs (Kimi Linear, arXiv:2510.26692). Forget and output gates come from latents of
	// KeyDim values.
	ChannelDecay bool
}

// Channels is the number of channels of the convolution: queries, keys and values.
func (d *DeltaNetConfig) Channels() int { return 2*d.KeyHeads*d.KeyDim + d.Inner() }

// Inner is the number of values.
func (d *DeltaNetConfig) Inner() int { return d.ValueHeads * d.ValueDim }

// MambaConfig describes selective state spaces. Groups divides Heads: the heads of a group share B
// and C.
type MambaConfig struct {
	Kernel         int // of the convolution, in tokens
	Heads, HeadDim int
	Groups         int
	State          int // elements of B and C
	ConvBias       bool
	InBias         bool    // of the input projection
	OutBias        bool    // of the output projection
	Least, Most    float64 // limits of time steps; Most may be infinite
	// Norm: the outputs of each group are normalized, behind the gate or, with NormFirst, before
	// it.
	Norm, NormFirst bool
	// Factors multiply the gates, inputs, B, C and time steps.
	Factors [5]float64
}

// Inner is the number of inputs, of outputs and of gates.
func (d *MambaConfig) Inner() int { return d.Heads * d.HeadDim }

// Channels is the number of channels of the convolution: inputs, B and C.
func (d *MambaConfig) Channels() int { return d.Inner() + 2*d.Groups*d.State }

// Rows is the number of outputs of the input projection.
func (d *MambaConfig) Rows() int { return d.Inner() + d.Channels() + d.Heads }

// mixerOf returns the mixer that tensors of a kind belong to, or NoMixer.
func mixerOf(kind Kind) Mixer {
	switch {
	case kind >= MambaIn:
		return MambaMixer
	case kind >= DeltaQKV:
		return DeltaNetMixer
	case kind >= ConvIn:
		return ShortConvMixer
	case kind >= QueryNorm && kind <= KeyValueUp:
		return AttentionMixer
	}
	return NoMixer
}

// States reports whether the layer has a state.
func (l *LayerConfig) States() bool { return l.Mixer != AttentionMixer && l.Mixer != NoMixer }

// HasStates reports whether any layer has a state.
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

// mixers reads which layers have a mixer, with these names in layer_types. Without the key, full
// decides which layers have attention.
func (k *keys) mixers(c *ForwardConfig, mixer Mixer, full func(i int) bool, names ...string) {
	k.layerTypes(c, func(i int) bool { return !full(i) }, func(l *LayerConfig) { l.Mixer = mixer }, names...)
}

// mamba reads the keys of state spaces under Bamba's names. inner is the default of the inner size.
func (k *keys) mamba(c *ForwardConfig, inner int) {
	d := &MambaConfig{
		Kernel: k.size("mamba_d_conv", 4), Heads: k.size("mamba_n_heads", 128), Groups: k.size("mamba_n_groups", 1), State: k.size("mamba_d_state", 256),
		ConvBias: k.boolean("mamba_conv_bias", true), InBias: k.boolean("mamba_proj_bias", false), Norm: true, Factors: [5]float64{1, 1, 1, 1, 1},
	}
	d.OutBias = d.InBias
	c.Mamba = d
	auto := string(k.keys["mamba_d_head"]) == `"auto"`
	if auto {
		k.irrelevant("mamba_d_head")
		d.HeadDim = inner / max(1, d.Heads)
	} else {
		d.HeadDim = k.size("mamba_d_head", max(1, inner/max(1, d.Heads)))
	}
	if d.Inner() != inner {
		k.fail("mamba_n_heads", "is %d, with heads of %d: %d values in all heads were expected", d.Heads, d.HeadDim, inner)
	}
	d.Most = math.Inf(1)
	if limits := read(k, "time_step_limit", []float64(nil), "is not a list of numbers"); limits != nil {
		if len(limits) != 2 || limits[1] != 0 && !(limits[0] <= limits[1]) {
			k.fail("time_step_limit", "is %v: a lower and an upper limit were expected", limits)
			return
		}
		if d.Least = limits[0]; limits[1] > 0 { // Infinity is read as 0
			d.Most = limits[1]
		}
	}
	k.irrelevant("mamba_chunk_size", "mamba_expand")
}

// deltaNet reads the keys of gated delta nets and of the attention in between.
func (k *keys) deltaNet(c *ForwardConfig) {
	c.DeltaNet = &DeltaNetConfig{
		Kernel: k.size("linear_conv_kernel_dim", 4), KeyHeads: k.size("linear_num_key_heads", 16), ValueHeads: k.size("linear_num_value_heads", 32),
		KeyDim: k.size("linear_key_head_dim", 128), ValueDim: k.size("linear_value_head_dim", 128),
	}
	period := k.size("full_attention_interval", 4)
	k.mixers(c, DeltaNetMixer, func(i int) bool { return (i+1)%max(1, period) == 0 }, "linear_attention")
	c.AttentionGate, c.PlusOne, c.QKNorm = true, true, HeadNorms
}
