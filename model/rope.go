package model

import (
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/model/arch"
)

// rotation holds the cosines and sines of the positions seen so far.
type rotation struct {
	freqs    []float32
	factor   float64
	cos, sin []float32 // [position][len(freqs)]
	// neighbours: the values 2i and 2i+1 are rotated, not i and i+len(freqs).
	neighbours bool
}

func newRotation(r *arch.RopeConfig, maxTokens int) *rotation {
	return &rotation{freqs: r.Frequencies(maxTokens), factor: r.AttentionFactor, neighbours: r.Neighbours}
}

// reach extends the tables to all positions below n.
func (r *rotation) reach(n int) {
	for p := len(r.cos) / len(r.freqs); p < n; p++ {
		for _, f := range r.freqs {
			a := float64(float32(float32(p) * f)) // in float32, as the models were trained with
			r.cos = append(r.cos, float32(detmath.Cos(a)*r.factor))
			r.sin = append(r.sin, float32(detmath.Sin(a)*r.factor))
		}
	}
}

// turn rotates the first 2*len(freqs) values of one head's vector x to position p.
func (r *rotation) turn(x []float32, p int) {
	n := len(r.freqs)
	cos, sin := r.cos[p*n:][:n], r.sin[p*n:][:n]
	if r.neighbours {
		for i, c := range cos {
			a, b, s := x[2*i], x[2*i+1], sin[i]
			x[2*i] = float32(a*c) - float32(b*s)
			x[2*i+1] = float32(b*c) + float32(a*s)
		}
		return
	}
	lo, hi := x[:n], x[n:][:n]
	for i, c := range cos {
		a, b, s := lo[i], hi[i], sin[i]
		lo[i] = float32(a*c) - float32(b*s)
		hi[i] = float32(b*c) + float32(a*s)
	}
}
