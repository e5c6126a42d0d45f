package model

import (
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/model/internal/rowmath"
)

// rmsNorm writes x / sqrt(mean(x^2) + eps) * weights.
func rmsNorm(dst, x, weights []float32, eps float64) {
	inverse := rmsInverse(x, eps)
	for i, v := range x {
		dst[i] = float32(float32(v*inverse) * weights[i])
	}
}

// rmsInverse returns 1 / sqrt(mean(x^2) + eps). Squares are exact in float64 and summed in 8 lanes.
func rmsInverse(x []float32, eps float64) float32 {
	var lanes [8]float64
	n := len(x) &^ 7
	for i := 0; i < n; i += 8 {
		row := (*[8]float32)(x[i:])
		for j, v := range row {
			lanes[j] += float64(float64(v) * float64(v))
		}
	}
	for i, v := range x[n:] {
		lanes[i] += float64(float64(v) * float64(v))
	}
	return float32(1 / math.Sqrt(sum8(&lanes)/float64(len(x))+eps))
}

// sum8 adds lanes in a fixed tree.
func sum8(l *[8]float64) float64 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

// activate replaces gate by f(gate) * up with the activation function f of the feed-forward
// network.
func (m *Model) activate(gate, up []float32) {
	switch m.config.Activation {
	case "silu":
		m.math.Gate(gate, up, rowmath.SiluLinear, rowmath.SiluCubic)
	case "gelu_pytorch_tanh":
		m.math.Gate(gate, up, rowmath.GeluLinear, rowmath.GeluCubic)
	}
}

// softcap replaces each x by c tanh(x/c).
func softcap(x []float32, c float32) {
	for i, v := range x {
		x[i] = float32(c * detmath.Tanh32(v/c))
	}
}
