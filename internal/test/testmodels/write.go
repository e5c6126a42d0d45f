package testmodels

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/job/synth"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/packing"
)

// Write makes the checkpoint of a variant in dir, with float32 weights.
func (v Variant) Write(t testing.TB, dir string) {
	t.Helper()
	config, err := json.MarshalIndent(v.Config, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	WriteModel(t, dir, config)
	for name, content := range v.Tokenizer.files(t) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// WriteModel makes a checkpoint with random float32 weights, without a tokenizer.
func WriteModel(t testing.TB, dir string, config []byte) {
	t.Helper()
	c, err := arch.ParseForward(config)
	if err != nil {
		t.Fatal(err)
	}
	m := synth.Model{Config: config, Tensors: tensors(c), Dtype: packing.F32}
	if err := synth.WriteModel(context.Background(), dir, m, nil); err != nil {
		t.Fatal(err)
	}
}

// A builder lists the tensors of a model.
type builder struct {
	c   *arch.ForwardConfig
	all []synth.Tensor
}

// tensors lists the tensors that package model reads for the configuration. Package model fails for
// a tensor too few or too many.
func tensors(c *arch.ForwardConfig) []synth.Tensor {
	b := &builder{c: c}
	body := c.Facts.Prefix.Body
	b.linear(strings.TrimSuffix(c.Facts.Prefix.Embedding, ".weight"), c.VocabSize, c.HiddenSize, 1, false)
	b.outer()
	for i, l := range c.Layers {
		b.layer(fmt.Sprintf("%slayers.%d.", body, i), l)
	}
	b.norm(body+c.Facts.FinalNorm.HF, c.HiddenSize, 1.8)
	if !c.Tied {
		b.linear("lm_head", c.VocabSize, c.HiddenSize, 1, c.HeadBias)
	}
	return b.all
}

// outer adds the tensors outside of layers that inputs of single layers and several streams need.
func (b *builder) outer() {
	c, h := b.c, b.c.HiddenSize
	if p := c.PerLayer; p != nil {
		b.kind("model.", arch.PerLayerEmbedding, p.Vocab, len(c.Layers)*p.Width, 1)
		b.kind("model.", arch.PerLayerModel, len(c.Layers)*p.Width, h, 1)
		b.norm("model."+c.NameOf(arch.PerLayerModelNorm), p.Width, 1)
	}
	for i := 1; c.AltUp != nil && i < c.AltUp.Streams; i++ {
		for _, kind := range []arch.Kind{arch.StreamProjections, arch.StreamOutputs} {
			b.linear("model."+strings.Replace(c.NameOf(kind), "*", strconv.Itoa(i-1), 1), h, h, 1, false)
		}
	}
}

// further adds the tensors of a layer beside attention and feed-forward network.
func (b *builder) further(at string) {
	c, h := b.c, b.c.HiddenSize
	if p := c.PerLayer; p != nil {
		b.kind(at, arch.PerLayerGate, p.Width, h, 1)
		b.kind(at, arch.PerLayerProjection, h, p.Width, 1)
		b.norm(at+c.NameOf(arch.PerLayerNorm), h, 0.5)
	}
	if name := c.NameOf(arch.LayerScalar); name != "" {
		b.all = append(b.all, synth.Vector(at+name, 1, 1, 0.1))
	}
	if a := c.AltUp; a != nil {
		b.norm(at+c.NameOf(arch.StreamNorm), h, 1)
		b.kind(at, arch.StreamRouter, a.Streams, h, 10)
		b.kind(at, arch.StreamPredict, a.Streams*a.Streams, a.Streams, 0.3)
		b.kind(at, arch.StreamCorrect, a.Streams, a.Streams, 0.3)
		b.all = append(b.all, synth.Vector(at+c.NameOf(arch.StreamScale), h, 1, 0.1))
	}
	if c.Laurel > 0 {
		b.kind(at, arch.LaurelLeft, c.Laurel, h, 1)
		b.kind(at, arch.LaurelRight, h, c.Laurel, 1)
		b.norm(at+c.NameOf(arch.LaurelNorm), h, 0.5)
	}
}

// linear adds a matrix with a standard deviation of gain / sqrt(cols), and its bias.
func (b *builder) linear(name string, rows, cols int, gain float64, bias bool) {
	b.all = append(b.all, synth.Matrix(name+".weight", rows, cols, gain))
	if bias {
		b.all = append(b.all, synth.Vector(name+".bias", rows, 0, 0.2))
	}
}

// norm adds a norm that multiplies by mean on average.
func (b *builder) norm(name string, n int, mean float64) {
	std := mean / 8
	if b.c.PlusOne {
		mean--
	}
	b.all = append(b.all, synth.Vector(name+".weight", n, mean, std))
	if b.c.NormBias {
		b.all = append(b.all, synth.Vector(name+".bias", n, 0, 0.1))
	}
}

// layer adds the tensors of a layer. Each kind has a mean or a gain of its own.
func (b *builder) layer(at string, l arch.LayerConfig) {
	c := b.c
	q, kv := c.Heads*l.HeadDim, l.KVHeads*l.HeadDim
	b.further(at)
	before := 0.7
	if c.Facts.Has(arch.PostAttentionNorm) {
		before = 0.9
	}
	qNorm, kNorm := l.HeadDim, l.HeadDim
	if c.QKNorm == arch.WholeNorms {
		qNorm, kNorm = q, kv
	}
	for _, n := range []struct {
		kind  arch.Kind
		width int
		mean  float64
	}{
		{arch.InputNorm, c.HiddenSize, 0.8}, {arch.PostAttentionNorm, c.HiddenSize, 0.7}, {arch.FeedForwardNorm, c.HiddenSize, before},
		{arch.PostFeedForwardNorm, c.HiddenSize, 0.6}, {arch.QueryNorm, qNorm, 1.5}, {arch.KeyNorm, kNorm, 1.2},
	} {
		if name := c.NameOf(n.kind); name != "" && l.Uses(n.kind) {
			b.norm(at+name, n.width, n.mean)
		}
	}
	if l.Mixer == arch.AttentionMixer || l.Beside {
		b.kind(at, arch.FusedQKV, q+2*kv, c.HiddenSize, 1.5)
		queries := q
		if c.AttentionGate {
			queries *= 2
		}
		if a := c.Latent; a != nil {
			b.latent(at, a)
			q = c.Heads * a.Value
		} else {
			b.kind(at, arch.Query, queries, c.HiddenSize, 1.5)
		}
		for _, k := range []struct {
			kind arch.Kind
			gain float64
		}{{arch.Key, 1.6}, {arch.Value, 0.9}} {
			if l.Uses(k.kind) {
				b.kind(at, k.kind, kv, c.HiddenSize, k.gain)
			}
		}
		b.kind(at, arch.Output, c.HiddenSize, q, 0.7)
		if name := c.NameOf(arch.Sinks); name != "" {
			b.all = append(b.all, synth.Vector(at+name, c.Heads, 0, 1))
		}
	}
	switch l.Mixer {
	case arch.ShortConvMixer:
		b.kind(at, arch.ConvIn, 3*c.HiddenSize, c.HiddenSize, 1)
		b.conv(at+c.Facts.NameOf(arch.ConvKernel), c.HiddenSize, c.ShortConv.Kernel)
		b.kind(at, arch.ConvOut, c.HiddenSize, c.HiddenSize, 0.9)
	case arch.DeltaNetMixer:
		b.deltaNet(at, c.DeltaNet)
	case arch.MambaMixer:
		b.mamba(at, c.Mamba)
	}
	if l.NoFeedForward {
		return
	}
	if l.Experts {
		b.experts(at)
		return
	}
	b.kind(at, arch.FusedGateUp, 2*l.Intermediate, c.HiddenSize, 1)
	b.kind(at, arch.Gate, l.Intermediate, c.HiddenSize, 1)
	b.kind(at, arch.Up, l.Intermediate, c.HiddenSize, 0.9)
	b.kind(at, arch.Down, c.HiddenSize, l.Intermediate, 1.3)
}

// latent adds the tensors of attention with latents, without the output projection.
func (b *builder) latent(at string, a *arch.LatentConfig) {
	c := b.c
	if a.QueryRank > 0 {
		b.kind(at, arch.QueryDown, a.QueryRank, c.HiddenSize, 1.2)
		b.norm(at+c.NameOf(arch.LatentQueryNorm), a.QueryRank, 1.1)
		b.kind(at, arch.QueryUp, c.Heads*c.HeadDim, a.QueryRank, 1.5)
	} else {
		b.kind(at, arch.Query, c.Heads*c.HeadDim, c.HiddenSize, 1.5)
	}
	b.kind(at, arch.KeyDown, a.KeyRank+a.Rope, c.HiddenSize, 1.4)
	b.norm(at+c.NameOf(arch.LatentKeyNorm), a.KeyRank, 1)
	b.kind(at, arch.KeyValueUp, c.Heads*(a.Nope+a.Value), a.KeyRank, 1.2)
}

// kind adds a linear layer if the architecture has the kind.
func (b *builder) kind(at string, kind arch.Kind, rows, cols int, gain float64) {
	if name := b.c.Facts.NameOf(kind); name != "" {
		b.linear(at+name, rows, cols, gain, b.c.BiasOf(kind))
	}
}

// conv adds a convolution of each channel for itself.
func (b *builder) conv(name string, channels, taps int) {
	t := synth.Matrix(name+".weight", channels, taps, 1.5)
	t.Slices = int64(channels)
	b.all = append(b.all, t)
}

func (b *builder) mamba(at string, d *arch.MambaConfig) {
	h, facts := b.c.HiddenSize, b.c.Facts
	b.kind(at, arch.MambaIn, d.Rows(), h, 1)
	conv := at + facts.NameOf(arch.MambaConv)
	if b.conv(conv, d.Channels(), d.Kernel); d.ConvBias {
		b.all = append(b.all, synth.Vector(conv+".bias", d.Channels(), 0, 0.2))
	}
	b.all = append(b.all, synth.Vector(at+facts.NameOf(arch.MambaDecay), d.Heads, -2, 1),
		synth.Vector(at+facts.NameOf(arch.MambaSkip), d.Heads, 0.5, 0.3), synth.Vector(at+facts.NameOf(arch.MambaBias), d.Heads, 0, 0.3))
	if d.Norm {
		b.all = append(b.all, synth.Vector(at+facts.NameOf(arch.MambaNorm)+".weight", d.Inner(), 1, 0.2))
	}
	b.kind(at, arch.MambaOut, h, d.Inner(), 0.9)
}

func (b *builder) deltaNet(at string, d *arch.DeltaNetConfig) {
	h, facts := b.c.HiddenSize, b.c.Facts
	b.kind(at, arch.DeltaQKV, d.Channels(), h, 1)
	b.kind(at, arch.DeltaZ, d.Inner(), h, 1)
	b.kind(at, arch.DeltaB, d.ValueHeads, h, 1)
	b.kind(at, arch.DeltaA, d.ValueHeads, h, 1)
	b.kind(at, arch.DeltaQKVZ, d.Channels()+d.Inner(), h, 1)
	b.kind(at, arch.DeltaBA, 2*d.ValueHeads, h, 1)
	biases := d.ValueHeads
	if d.ChannelDecay {
		biases = d.KeyHeads * d.KeyDim
		for _, kind := range []arch.Kind{arch.DeltaQuery, arch.DeltaKey, arch.DeltaValue} {
			b.kind(at, kind, d.KeyHeads*d.KeyDim, h, 1)
		}
		for _, kind := range []arch.Kind{arch.DeltaConvQuery, arch.DeltaConvKey, arch.DeltaConvValue} {
			b.conv(at+facts.NameOf(kind), d.KeyHeads*d.KeyDim, d.Kernel)
		}
		for _, kind := range []arch.Kind{arch.DeltaForgetDown, arch.DeltaGateDown} {
			b.kind(at, kind, d.KeyDim, h, 1)
			b.kind(at, kind+1, d.KeyHeads*d.KeyDim, d.KeyDim, 1)
		}
	} else {
		b.conv(at+facts.NameOf(arch.DeltaConv), d.Channels(), d.Kernel)
	}
	b.all = append(b.all, synth.Vector(at+facts.NameOf(arch.DeltaDecay), d.ValueHeads, -2, 1),
		synth.Vector(at+facts.NameOf(arch.DeltaBias), biases, 0, 0.3),
		synth.Vector(at+facts.NameOf(arch.DeltaNorm)+".weight", d.ValueDim, 1, 0.2))
	b.kind(at, arch.DeltaOut, h, d.Inner(), 0.9)
}

func (b *builder) experts(at string) {
	c, e := b.c, b.c.Experts
	b.kind(at, arch.Router, e.Count, c.HiddenSize, 2)
	if name := c.NameOf(arch.RouterCorrection); name != "" {
		b.all = append(b.all, synth.Vector(at+name, e.Count, 0, 0.1))
	}
	if c.Facts.Has(arch.ExpertsNorm) {
		b.norm(at+c.NameOf(arch.ExpertsNorm), c.HiddenSize, 0.9)
		b.norm(at+c.NameOf(arch.ExpertsPostNorm), c.HiddenSize, 0.6)
		b.norm(at+c.NameOf(arch.SharedPostNorm), c.HiddenSize, 0.6)
		b.all = append(b.all, synth.Vector(at+c.NameOf(arch.RouterScale), c.HiddenSize, 10, 1), synth.Vector(at+c.NameOf(arch.ExpertScale), e.Count, 1, 0.1))
	}
	if e.Shared > 0 {
		b.kind(at, arch.SharedRouter, 1, c.HiddenSize, 1)
		b.kind(at, arch.SharedGate, e.Shared, c.HiddenSize, 1)
		b.kind(at, arch.SharedUp, e.Shared, c.HiddenSize, 0.9)
		b.kind(at, arch.SharedFused, 2*e.Shared, c.HiddenSize, 1)
		b.kind(at, arch.SharedDown, c.HiddenSize, e.Shared, 1.3)
	}
	if name := c.NameOf(arch.GateUpExperts); name != "" {
		b.fused(at+name, 2*e.Intermediate, c.HiddenSize, 1)
		b.fused(at+c.NameOf(arch.DownExperts), c.HiddenSize, e.Intermediate, 1.3)
		return
	}
	width := c.HiddenSize
	if e.Latent > 0 {
		width = e.Latent
		b.kind(at, arch.ExpertsIn, width, c.HiddenSize, 1)
		b.kind(at, arch.ExpertsOut, c.HiddenSize, width, 1)
	}
	for i := range e.Count {
		name := func(kind arch.Kind) string {
			return at + strings.Replace(c.Facts.NameOf(kind), "*", strconv.Itoa(i), 1)
		}
		if c.Facts.Has(arch.GateExperts) {
			b.linear(name(arch.GateExperts), e.Intermediate, width, 1, false)
		}
		b.linear(name(arch.UpExperts), e.Intermediate, width, 0.9, false)
		b.linear(name(arch.DownExperts), width, e.Intermediate, 1.3, false)
	}
}

// fused adds the matrices of all experts as a tensor, and their biases.
func (b *builder) fused(name string, rows, cols int, gain float64) {
	e := b.c.Experts
	t := synth.Matrix(name+".weight", e.Count*rows, cols, gain)
	if b.c.ExpertsTransposed() {
		t.Name, t.Rows, t.Cols = name, int64(e.Count*cols), int64(rows)
	}
	t.Slices = int64(e.Count)
	b.all = append(b.all, t)
	if e.Bias {
		biases := synth.Matrix(arch.BiasName(t.Name), e.Count, rows, 1)
		biases.Std = 0.2
		b.all = append(b.all, biases)
	}
}
