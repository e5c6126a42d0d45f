package forward

import (
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// deltaNet is the middle of a gated delta net. A part is a head of keys and queries, and the heads
// of values that it serves. For each token of a head, with the queries q, the keys k and the values
// v behind the convolution, q and k of length 1, and the state S:
//
//	S = decay S
//	S = S + k (beta (v - k S))
//	o = q S / sqrt(KeyDim)
//
// The output is the norm of o, times silu(z). With ChannelDecay, each row of S has a decay of its
// own, and sigmoid(z) takes the place of silu(z).
type deltaNet struct {
	*arch.DeltaNetConfig
	m       *Model
	by      *norm
	group   int           // heads of values in a part
	places  [6]deltaPlace // of q, k, v, z, b and a
	kernels [][]float32   // of each part, [tap][channel]
	decays  int           // of a head of values: 1 or KeyDim
	rate    []float64     // of each head of values: decay is e^(rate softplus(a + bias))
	bias    []float32     // of each decay
	ones    []float32
}

// deltaPlace is where the outputs of projections have a part's values: n from column at + part *
// stride on, of a projection with this number of rows.
type deltaPlace struct{ linear, at, stride, n, rows int }

func (p *deltaPlace) of(in [][]float32, row, part int) []float32 {
	return in[p.linear][row*p.rows+p.at+part*p.stride:][:p.n]
}

// deltaEps is added to squares of lengths of queries and keys.
const deltaEps = 1e-6

func (o *opener) deltaNet() *recurrence {
	c := &o.config
	d := &deltaNet{DeltaNetConfig: c.DeltaNet, m: o.Model, group: c.DeltaNet.ValueHeads / c.DeltaNet.KeyHeads, decays: 1}
	kinds := []arch.Kind{arch.DeltaConv}
	if d.ChannelDecay {
		d.decays, kinds = d.KeyDim, []arch.Kind{arch.DeltaConvQuery, arch.DeltaConvKey, arch.DeltaConvValue}
	}
	keys, values := d.KeyHeads*d.KeyDim, d.inner()
	specs := d.arrange(o, keys, values)
	d.ones = slices.Repeat([]float32{1}, max(d.width(), d.ValueDim))
	lists := make([][]int, d.KeyHeads)
	for p := range lists {
		lists[p] = spread([2]int{p * d.KeyDim, d.KeyDim}, [2]int{keys + p*d.KeyDim, d.KeyDim}, [2]int{2*keys + p*d.group*d.ValueDim, d.group * d.ValueDim})
	}
	d.kernels = o.kernels(d.Channels(), d.Kernel, lists, kinds...)
	if stored, _ := o.source.shape(o.name(arch.DeltaDecay)); len(stored) == 4 { // Kimi Linear
		d.rate = rates(o.values(o.name(arch.DeltaDecay), 1, 1, int64(d.ValueHeads), 1))
	} else {
		d.rate = rates(o.vector(o.name(arch.DeltaDecay), d.ValueHeads))
	}
	d.bias = o.vector(o.name(arch.DeltaBias), d.ValueHeads*d.decays)
	d.by = o.normOf(o.name(arch.DeltaNorm)+".weight", d.ValueDim, false)
	r := &recurrence{mixer: d, in: o.all(specs...), out: o.linear(arch.DeltaOut, c.HiddenSize, values)}
	if d.ChannelDecay {
		r.ups = []lowRank{{3, o.linear(arch.DeltaForgetUp, keys, d.KeyDim)}, {5, o.linear(arch.DeltaGateUp, keys, d.KeyDim)}}
	}
	return r
}

// scaled: the norm of the outputs takes every factor back.
func (d *deltaNet) scaled([]*linear) *Block { return nil }

// arrange returns the input projections and finds the places of a part's values in their outputs:
// Qwen3.5 has four projections, Qwen3-Next has two that hold the values of each head of keys
// together, Kimi Linear has six and two behind them.
func (d *deltaNet) arrange(o *opener, keys, values int) []linearSpec {
	h, own := o.config.HiddenSize, d.group*d.ValueDim
	if o.config.Facts.Has(arch.DeltaQKVZ) {
		all, both := 2*d.KeyDim+2*own, 2*d.group
		d.places = [6]deltaPlace{
			{0, 0, all, d.KeyDim, all * d.KeyHeads}, {0, d.KeyDim, all, d.KeyDim, all * d.KeyHeads},
			{0, 2 * d.KeyDim, all, own, all * d.KeyHeads}, {0, 2*d.KeyDim + own, all, own, all * d.KeyHeads},
			{1, 0, both, d.group, both * d.KeyHeads}, {1, d.group, both, d.group, both * d.KeyHeads},
		}
		return []linearSpec{o.spec(arch.DeltaQKVZ, 2*keys+2*values, h), o.spec(arch.DeltaBA, 2*d.ValueHeads, h)}
	}
	if d.ChannelDecay {
		d.places = [6]deltaPlace{
			{0, 0, d.KeyDim, d.KeyDim, keys}, {1, 0, d.KeyDim, d.KeyDim, keys}, {2, 0, d.ValueDim, d.ValueDim, values},
			{7, 0, d.ValueDim, d.ValueDim, values}, {4, 0, 1, 1, d.ValueHeads}, {6, 0, d.KeyDim, d.KeyDim, keys},
		}
		return []linearSpec{
			o.spec(arch.DeltaQuery, keys, h), o.spec(arch.DeltaKey, keys, h), o.spec(arch.DeltaValue, values, h),
			o.spec(arch.DeltaForgetDown, d.KeyDim, h), o.spec(arch.DeltaB, d.ValueHeads, h), o.spec(arch.DeltaGateDown, d.KeyDim, h),
		}
	}
	all := d.Channels()
	d.places = [6]deltaPlace{
		{0, 0, d.KeyDim, d.KeyDim, all}, {0, keys, d.KeyDim, d.KeyDim, all}, {0, 2 * keys, own, own, all}, {1, 0, own, own, values},
		{2, 0, d.group, d.group, d.ValueHeads}, {3, 0, d.group, d.group, d.ValueHeads},
	}
	return []linearSpec{
		o.spec(arch.DeltaQKV, all, h), o.spec(arch.DeltaZ, values, h),
		o.spec(arch.DeltaB, d.ValueHeads, h), o.spec(arch.DeltaA, d.ValueHeads, h),
	}
}

// width is the number of channels of a part.
func (d *deltaNet) width() int { return 2*d.KeyDim + d.group*d.ValueDim }

func (d *deltaNet) inner() int  { return d.Inner() }
func (d *deltaNet) parts() int  { return d.KeyHeads }
func (d *deltaNet) units() int  { return d.KeyHeads }
func (d *deltaNet) norm() *norm { return d.by }

func (d *deltaNet) cost() int {
	return 8*d.group*d.KeyDim*d.ValueDim + 4*d.width()*d.Kernel
}

func (d *deltaNet) state(part int) (from, to int) {
	n := (d.Kernel-1)*d.width() + d.group*d.KeyDim*d.ValueDim
	return part * n, (part + 1) * n
}

// gather copies a part's inputs of the convolution.
func (d *deltaNet) gather(u []float32, in [][]float32, row, part int) {
	for i := range 3 {
		u = u[copy(u, d.places[i].of(in, row, part)):]
	}
}

// stretch scales x to this length, and returns the factor.
func stretch(x []float32, length float64) float32 {
	f := float32(length / math.Sqrt(float64(dot(x, x))+deltaEps))
	for i, v := range x {
		x[i] = float32(v * f)
	}
	return f
}

// forget computes the decays of head j of values of a part, and the derivatives of their logarithms
// by a, given a row of a part.
func (d *deltaNet) forget(decay, slope, a []float32, part, j int) {
	head := part*d.group + j
	for i := range d.decays {
		soft, inverse := softplus(float64(a[j*d.decays+i]) + float64(d.bias[head*d.decays+i]))
		decay[i], slope[i] = float32(detmath.Exp(d.rate[head]*soft)), float32(d.rate[head]/inverse)
	}
}

// softplus returns log(1 + e^x), and 1 / its derivative.
func softplus(x float64) (y, inverse float64) {
	if y = x; x < 20 {
		y = detmath.Log(1 + detmath.Exp(x))
	}
	return y, 1 + detmath.Exp(-x)
}

func logistic(x float32) float32 { return float32(1 / (1 + detmath.Exp(-float64(x)))) }

// step moves a head's state s by a token: out receives q S, and delta what was added to S for k.
func (d *deltaNet) step(s, q, k, v, out, delta, decay []float32, beta float32) {
	set, dk, dv, later := d.m.math, d.KeyDim, d.ValueDim, decay[0]
	if d.ChannelDecay {
		d.scaleRows(s, decay)
		later = 1
	}
	clear(delta)
	set.MulAdd(delta, dv, k, dk, s, dv, 1, dk, dv)
	for i, known := range delta {
		delta[i] = float32((v[i] - float32(known*later)) * beta)
	}
	if !d.ChannelDecay {
		d.scaleRows(s, decay)
	}
	set.MulAdd(s, dv, k, 1, delta, dv, dk, 1, dv)
	clear(out)
	set.MulAdd(out, dv, q, dk, s, dv, 1, dk, dv)
}

// scaleRows multiplies the rows of a state by their decays.
func (d *deltaNet) scaleRows(s, decay []float32) {
	for i := range d.KeyDim {
		row, f := s[i*d.ValueDim:][:d.ValueDim], decay[i%len(decay)]
		for j, x := range row {
			row[j] = float32(x * f)
		}
	}
}

func (d *deltaNet) forward(w *mixerWorker, part int, out []float32, in [][]float32, from, n int, state []float32) {
	width, dk, dv := d.width(), d.KeyDim, d.ValueDim
	w.reset(2*width + 2*dv + 2*d.decays)
	u, x, delta, z := w.take(width), w.take(width), w.take(dv), w.take(dv)
	decay, slope := w.take(d.decays), w.take(d.decays)
	taps, states := state[:(d.Kernel-1)*width], state[(d.Kernel-1)*width:]
	for row := from; row < from+n; row++ {
		d.gather(u, in, row, part)
		convolve(x, u, taps, d.kernels[part])
		d.m.activate(x, d.ones[:width])
		q, k := x[:dk], x[dk:2*dk]
		stretch(q, 1/math.Sqrt(float64(dk)))
		stretch(k, 1)
		for j := range d.group {
			head := part*d.group + j
			d.forget(decay, slope, d.places[5].of(in, row, part), part, j)
			o := out[row*d.inner()+head*dv:][:dv]
			d.step(states[j*dk*dv:][:dk*dv], q, k, x[2*dk+j*dv:][:dv], o, delta, decay, logistic(d.places[4].of(in, row, part)[j]))
			rmsNorm(o, o, d.by.weights, d.m.config.NormEps)
			copy(z, d.places[3].of(in, row, part)[j*dv:])
			if d.ChannelDecay {
				for i, v := range z {
					o[i] = float32(o[i] * logistic(v))
				}
				continue
			}
			d.m.activate(z, o)
			copy(o, z)
		}
	}
}
