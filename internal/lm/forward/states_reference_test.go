package forward

import (
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/lm/arch"
)

// mix computes the inputs of a recurrence's output projection for a sequence.
func (r *reference) mix(l *recurrence, x [][]float64) [][]float64 {
	var in [][]float64
	for p := range x {
		all := r.linear(x[p], l.in...)
		own := len(all)
		for _, up := range l.ups {
			first := 0
			for _, in := range l.in[:up.from] {
				first += in.spec.rows
			}
			all = append(all, r.linear(all[first:][:up.spec.cols], up.linear)...)
		}
		if d, ok := l.mixer.(*deltaNet); ok && d.ChannelDecay { // as without latents
			keys, b := d.KeyHeads*d.KeyDim, 3*d.KeyHeads*d.KeyDim+d.KeyDim
			all = slices.Concat(all[:3*keys], all[own+keys:], all[b:][:d.ValueHeads], all[own:][:keys])
		}
		in = append(in, all)
	}
	switch d := l.mixer.(type) {
	case *deltaNet:
		return r.deltaNet(d, in)
	case *mamba:
		return r.mamba(d, l.behind, in)
	}
	return r.shortConv(l.mixer.(*shortConv), in)
}

func (r *reference) mamba(d *mamba, behind *norm, raws [][]float64) (out [][]float64) {
	inner, all, f := d.Inner(), d.Channels(), d.Factors
	taps := make([][]float64, all) // of each channel, the current token last
	biases := make([]float64, all)
	for g := range d.Groups {
		kernel, at := d.kernels[d.parts()+g], 0
		for _, span := range d.channels(g*d.Heads/d.Groups, d.Heads/d.Groups) {
			for c := span[0]; c < span[0]+span[1]; c++ {
				for j := range d.Kernel {
					taps[c] = append(taps[c], float64(kernel[j*len(kernel)/d.Kernel+at]))
				}
				if d.biases != nil {
					biases[c] = float64(d.biases[d.parts()+g][at])
				}
				at++
			}
		}
	}
	states := make([][]float64, d.Heads) // [State][HeadDim]
	for h := range states {
		states[h] = make([]float64, d.State*d.HeadDim)
	}
	factor := func(c int) float64 {
		switch {
		case c < inner:
			return f[1]
		case c < inner+d.Groups*d.State:
			return f[2]
		}
		return f[3]
	}
	for p, raw := range raws {
		x, y := make([]float64, all), make([]float64, inner)
		for c := range x {
			for j := range min(d.Kernel, p+1) {
				x[c] += taps[c][d.Kernel-1-j] * raws[p-j][inner+c] * factor(c)
			}
			x[c] = silu(x[c] + biases[c])
		}
		for h, s := range states {
			group := h / (d.Heads / d.Groups)
			b, c := x[inner+group*d.State:], x[inner+(d.Groups+group)*d.State:]
			dt := math.Log1p(math.Exp(raw[inner+all+h]*f[4] + float64(d.timeBias[h])))
			dt = min(max(dt, d.Least), d.Most)
			for i := range d.HeadDim {
				v := x[h*d.HeadDim+i]
				o := v * float64(d.skip[h])
				for n := range d.State {
					s[n*d.HeadDim+i] = s[n*d.HeadDim+i]*math.Exp(d.rate[h]*dt) + b[n]*dt*v
					o += c[n] * s[n*d.HeadDim+i]
				}
				y[h*d.HeadDim+i] = o
			}
		}
		gated := func() {
			for i := range y {
				y[i] *= silu(raw[i] * f[0])
			}
		}
		if !d.NormFirst {
			gated()
		}
		if behind != nil {
			width := inner / d.Groups
			var normed []float64
			for g := range d.Groups {
				part := &norm{Norm: Norm{Width: width}, eps: behind.eps}
				for i, v := range r.norm(y[g*width:][:width], part) {
					normed = append(normed, v*r.params[behind.Tensor][g*width+i])
				}
			}
			y = normed
		}
		if d.NormFirst {
			gated()
		}
		out = append(out, y)
	}
	return out
}

func (r *reference) shortConv(conv *shortConv, in [][]float64) (out [][]float64) {
	h := r.m.config.HiddenSize
	for p, all := range in {
		y := make([]float64, h)
		for c := range y {
			for j := range min(conv.taps, p+1) {
				before := in[p-j]
				kernel := conv.kernels[c/convBlock]
				tap := kernel[(conv.taps-1-j)*(len(kernel)/conv.taps)+c%convBlock]
				y[c] += float64(tap) * before[c] * before[2*h+c]
			}
			y[c] *= all[h+c]
		}
		out = append(out, y)
	}
	return out
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

func (r *reference) deltaNet(d *deltaNet, raws [][]float64) (out [][]float64) {
	dk, dv, group := d.KeyDim, d.ValueDim, d.ValueHeads/d.KeyHeads
	states := make([][]float64, d.ValueHeads)
	for i := range states {
		states[i] = make([]float64, dk*dv)
	}
	var in [][][]float64 // [position][head of keys][channel]
	for p, raw := range raws {
		q, k, v, z, b, a := r.deltaInputs(d, raw)
		var channels [][]float64
		for h := range d.KeyHeads {
			channels = append(channels, slices.Concat(q[h*dk:][:dk], k[h*dk:][:dk], v[h*group*dv:][:group*dv]))
		}
		in = append(in, channels)
		var y []float64
		for h := range d.KeyHeads {
			mixed := make([]float64, len(channels[h]))
			for c := range mixed {
				for j := range min(d.Kernel, p+1) {
					mixed[c] += float64(d.kernels[h][(d.Kernel-1-j)*len(mixed)+c]) * in[p-j][h][c]
				}
				mixed[c] = silu(mixed[c])
			}
			length := func(x []float64) []float64 {
				sum := 0.0
				for _, v := range x {
					sum += v * v
				}
				y := make([]float64, len(x))
				for i, v := range x {
					y[i] = v / math.Sqrt(sum+1e-6)
				}
				return y
			}
			q, k := length(mixed[:dk]), length(mixed[dk:2*dk])
			for j := range group {
				head := h*group + j
				s, o := states[head], make([]float64, dv)
				decays := make([]float64, dk)
				for i := range decays {
					at := head
					if d.ChannelDecay {
						at = head*dk + i
					}
					decays[i] = math.Exp(d.rate[head] * math.Log1p(math.Exp(a[at]+float64(d.bias[at]))))
				}
				for c := range dv {
					known := 0.0
					for i := range dk {
						s[i*dv+c] *= decays[i]
						known += k[i] * s[i*dv+c]
					}
					learned := (mixed[2*dk+j*dv+c] - known) / (1 + math.Exp(-b[head]))
					for i := range dk {
						s[i*dv+c] += k[i] * learned
						o[c] += q[i] / math.Sqrt(float64(dk)) * s[i*dv+c]
					}
				}
				for c, v := range r.norm(o, d.by) {
					gate := silu(z[head*dv+c])
					if d.ChannelDecay {
						gate /= z[head*dv+c]
					}
					y = append(y, v*gate)
				}
			}
		}
		out = append(out, y)
	}
	return out
}

// deltaInputs divides the outputs of the input projections.
func (r *reference) deltaInputs(d *deltaNet, raw []float64) (q, k, v, z, b, a []float64) {
	take := func(n int) []float64 {
		x := raw[:n:n]
		raw = raw[n:]
		return x
	}
	keys, group := d.KeyHeads*d.KeyDim, d.ValueHeads/d.KeyHeads
	if !r.m.config.Facts.Has(arch.DeltaQKVZ) {
		return take(keys), take(keys), take(d.Inner()), take(d.Inner()), take(d.ValueHeads), take(d.ValueHeads * d.decays)
	}
	for range d.KeyHeads {
		q, k = append(q, take(d.KeyDim)...), append(k, take(d.KeyDim)...)
		v, z = append(v, take(group*d.ValueDim)...), append(z, take(group*d.ValueDim)...)
	}
	for range d.KeyHeads {
		b, a = append(b, take(group)...), append(a, take(group)...)
	}
	return q, k, v, z, b, a
}
