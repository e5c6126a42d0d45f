package forward

import (
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/rowmath"
)

// mamba is the middle of a selective state space (Mamba-2). A part is a few heads of a group, which
// share B and C. For each token of a head, with the inputs x, B and C behind the convolution, the
// time step dt = softplus(raw + bias) within its limits, and the state S:
//
//	S = e^(rate dt) S + B (dt x)
//	o = C S + skip x
//
// The output is o silu(z), unless a norm comes before the gate.
type mamba struct {
	*arch.MambaConfig
	m              *Model
	heads          int         // of a part
	kernels        [][]float32 // of each part, [tap][channel]; then of each group
	biases         [][]float32 // the same, of the channels; nil without biases
	rate           []float64   // of each head
	skip, timeBias []float32   // of each head
	ones           []float32
}

// mambaHeads is the largest number of heads in a part. Parts of a group compute B and C again.
const mambaHeads = 8

func (o *opener) mamba() *recurrence {
	c := &o.config
	d := &mamba{MambaConfig: c.Mamba, m: o.Model, heads: 1}
	own := d.Heads / d.Groups
	for n := 2; n <= min(own, mambaHeads); n++ {
		if own%n == 0 {
			d.heads = n
		}
	}
	lists := make([][]int, 0, d.parts()+d.Groups)
	for _, heads := range []int{d.heads, own} {
		for first := 0; first < d.Heads; first += heads {
			channels := d.channels(first, heads)
			lists = append(lists, spread(channels[:]...))
		}
	}
	d.ones = slices.Repeat([]float32{1}, max(own*d.HeadDim+2*d.State, d.Inner()))
	d.kernels = o.kernels(d.Channels(), d.Kernel, lists, arch.MambaConv)
	if d.ConvBias {
		all := o.vector(o.name(arch.MambaConv)+".bias", d.Channels())
		for p := 0; p < len(lists) && o.err == nil; p++ {
			var bias []float32
			for _, i := range lists[p] {
				bias = append(bias, all[i])
			}
			d.biases = append(d.biases, bias)
		}
	}
	d.rate = rates(o.vector(o.name(arch.MambaDecay), d.Heads))
	d.skip, d.timeBias = o.vector(o.name(arch.MambaSkip), d.Heads), o.vector(o.name(arch.MambaBias), d.Heads)
	r := &recurrence{mixer: d, in: o.all(o.spec(arch.MambaIn, d.Rows(), c.HiddenSize)), out: o.linear(arch.MambaOut, c.HiddenSize, d.Inner())}
	if d.Norm {
		r.behind = o.normOf(o.name(arch.MambaNorm)+".weight", d.Inner(), false)
		if r.behind.groups = d.Groups; d.NormFirst {
			r.late = d
		}
	}
	return r
}

func (d *mamba) inner() int              { return d.Inner() }
func (d *mamba) parts() int              { return d.Heads / d.heads }
func (d *mamba) units() int              { return d.Groups }
func (d *mamba) norm() *norm             { return nil }
func (d *mamba) scaled([]*linear) *Block { return nil }

func (d *mamba) cost() int { return (6*d.State + 16) * d.heads * d.HeadDim }

// width is the number of channels of this many heads with their B and C.
func (d *mamba) width(heads int) int { return heads*d.HeadDim + 2*d.State }

func (d *mamba) state(part int) (from, to int) {
	n := (d.Kernel-1)*d.width(d.heads) + d.State*d.heads*d.HeadDim
	return part * n, (part + 1) * n
}

// channels returns the channels of heads from first on, and those of their B and C: the first of a
// range, and the number.
func (d *mamba) channels(first, heads int) [3][2]int {
	group := first / (d.Heads / d.Groups)
	return [3][2]int{
		{first * d.HeadDim, heads * d.HeadDim}, {d.Inner() + group*d.State, d.State}, {d.Inner() + (d.Groups+group)*d.State, d.State},
	}
}

// gather copies the channels of heads in a row of the projection's outputs, times their factors.
func (d *mamba) gather(u, row []float32, first, heads int) {
	for i, r := range d.channels(first, heads) {
		for _, v := range row[d.Inner()+r[0]:][:r[1]] {
			u[0] = float32(v * float32(d.Factors[1+i]))
			u = u[1:]
		}
	}
}

// scatter is the way back of gather, for gradients.
func (d *mamba) scatter(row, du []float32, first, heads int) {
	for i, r := range d.channels(first, heads) {
		for j := range row[d.Inner()+r[0]:][:r[1]] {
			row[d.Inner()+r[0]+j] = float32(du[0] * float32(d.Factors[1+i]))
			du = du[1:]
		}
	}
}

// mix computes the activated convolution x of u, and in mixed what the activation reads.
func (d *mamba) mix(x, mixed, u, taps []float32, kernel int) {
	convolve(mixed, u, taps, d.kernels[kernel])
	if d.biases != nil {
		addTo(mixed, d.biases[kernel])
	}
	copy(x, mixed)
	d.m.math.Gate(x, d.ones[:len(x)], rowmath.SiluLinear, rowmath.SiluCubic)
}

// step returns the time step of a head for a row, its derivative by the projection's output, and
// the decay.
func (d *mamba) step(row []float32, head int) (dt, slope, decay float32) {
	f := float64(float32(d.Factors[4]))
	soft, inverse := softplus(float64(float64(row[d.Inner()+d.Channels()+head])*f) + float64(d.timeBias[head]))
	switch {
	case soft < d.Least:
		soft, inverse = d.Least, math.Inf(1)
	case soft > d.Most:
		soft, inverse = d.Most, math.Inf(1)
	}
	return float32(soft), float32(f / inverse), float32(detmath.Exp(d.rate[head] * soft))
}

// advance moves states of width channels, [State][width], by a token with inputs v and decays of
// the channels. out receives C S.
func (d *mamba) advance(s, b, c, v, decay, out []float32) {
	w := len(v)
	for n := range d.State {
		row := s[n*w:][:w]
		for i, x := range row {
			row[i] = float32(x * decay[i])
		}
	}
	d.m.math.MulAdd(s, w, b, 1, v, w, d.State, 1, w)
	clear(out)
	d.m.math.MulAdd(out, w, c, d.State, s, w, 1, d.State, w)
}

// gate multiplies the values y of a row, from column at on, by silu(z).
func (d *mamba) gate(w *mixerWorker, y, row []float32, at int) {
	z := w.take(len(y))
	for i, v := range row[at:][:len(y)] {
		z[i] = float32(v * float32(d.Factors[0]))
	}
	d.m.math.Gate(z, y, rowmath.SiluLinear, rowmath.SiluCubic)
	copy(y, z)
	w.at -= len(y)
}

func (d *mamba) forward(w *mixerWorker, part int, out []float32, in [][]float32, from, n int, state []float32) {
	width, own, first := d.width(d.heads), d.heads*d.HeadDim, part*d.heads
	w.reset(3*width + 3*own)
	u, mixed, x := w.take(width), w.take(width), w.take(width)
	v, decay := w.take(own), w.take(own)
	taps, states := state[:(d.Kernel-1)*width], state[(d.Kernel-1)*width:]
	for t := from; t < from+n; t++ {
		row := in[0][t*d.Rows():][:d.Rows()]
		d.gather(u, row, first, d.heads)
		d.mix(x, mixed, u, taps, part)
		for j := range d.heads {
			dt, _, e := d.step(row, first+j)
			for i := j * d.HeadDim; i < (j+1)*d.HeadDim; i++ {
				v[i], decay[i] = float32(x[i]*dt), e
			}
		}
		o := out[t*d.Inner()+first*d.HeadDim:][:own]
		d.advance(states, x[own:][:d.State], x[own+d.State:], v, decay, o)
		for i := range o {
			o[i] += float32(x[i] * d.skip[first+i/d.HeadDim])
		}
		if !d.NormFirst {
			d.gate(w, o, row, first*d.HeadDim)
		}
	}
}
