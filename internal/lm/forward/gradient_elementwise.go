package forward

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/rowmath"
)

// normBackward computes the gradients of a norm's inputs x from the gradients dy of its outputs,
// and writes the result to dst or adds to dst. It adds the gradients of the gains to t.back.gains
// if gains is set. dst may be dy unless add is set.
//
// With y = x inverse w and inverse = 1 / sqrt(mean(x^2) + eps):
//
//	dw = sum over rows of dy x inverse
//	dx = inverse (w dy - x inverse^2 mean(w dy x))
func (t *Tape) normBackward(n *norm, dst, dy, x []float32, rows int, gains, add bool) {
	groups, width, eps := n.parts()
	inverse, means := buffer.Grow(&t.back.inverse, rows*groups), buffer.Grow(&t.back.means, rows*groups)
	centered := t.m.config.LayerNorm
	t.s.split(rows*groups, 2*width, func(_, from, to int) {
		for r := from; r < to; r++ {
			if row := x[r*width:][:width]; centered {
				means[r], inverse[r] = moments(row, eps)
			} else {
				means[r], inverse[r] = 0, rmsInverse(row, eps)
			}
		}
	})
	if gains {
		// Threads divide the gains, not the rows.
		t.s.split(n.Width, 4*rows, func(_, from, to int) {
			for r, inv := range inverse {
				first := r % groups * width
				lo, hi := max(from, first), min(to, first+width)
				if lo >= hi {
					continue
				}
				sums := t.back.gains[lo:hi]
				in, out := x[r*width+lo-first:][:len(sums)], dy[r*width+lo-first:][:len(sums)]
				for j := range sums {
					sums[j] += float64(float64(out[j]) * float64(float32((in[j]-means[r])*inv)))
				}
			}
		})
	}
	t.s.split(rows*groups, 4*width, func(_, from, to int) {
		for r := from; r < to; r++ {
			normRowBackward(dst[r*width:][:width], dy[r*width:][:width], x[r*width:][:width], n.weights[r%groups*width:], means[r], inverse[r], centered, add)
		}
	})
}

// normRowBackward is normBackward for the input of a single row. A centered norm subtracts the
// mean. With g = w dy and c = x - mean(x):
//
//	dx = inverse (g - mean(g) - c inverse^2 mean(g c))
func normRowBackward(dst, dy, x, weights []float32, mean, inverse float32, centered, add bool) {
	var sums, products [8]float64
	for i, v := range x {
		g := float64(float32(weights[i] * dy[i]))
		sums[i&7] += g
		products[i&7] += float64(g * float64(v-mean))
	}
	inv, n := float64(inverse), float64(len(x))
	shift := float32(0)
	if centered {
		shift = float32(sum8(&sums) * inv / n)
	}
	slope := float32(float64(sum8(&products)*inv) * float64(inv*inv) / n)
	for i, v := range x {
		d := float32(float32(weights[i]*dy[i])*inverse) - shift - float32((v-mean)*slope)
		if add {
			d += dst[i]
		}
		dst[i] = d
	}
}

// gateBackward computes the gradients of gate and up from the gradients dy of act = f(gate) * up.
// dup may be dy.
//
// With e^u as in [rowmath.Set.Gate], s = 1 / (1 + e^u) and f(x) = x s:
//
//	f'(x) = s - f(x) (1-s) u'(x),  u'(x) = linear (1 + 3 cubic x^2)
func (m *Model) gateBackward(dgate, dup, dy, gate, up []float32) {
	switch m.config.Activation {
	case "silu":
		m.gateSlopes(dgate, dup, dy, gate, up, rowmath.SiluLinear*m.config.GateSlope, rowmath.SiluCubic)
	case arch.SquaredRelu:
		for i, v := range dy {
			dgate[i] = float32(v * (2 * max(0, gate[i])))
		}
	case arch.ClampedSilu:
		m.clampedSiluBackward(dgate, dup, dy, gate, up)
	case "gelu_pytorch_tanh":
		m.gateSlopes(dgate, dup, dy, gate, up, rowmath.GeluLinear, rowmath.GeluCubic)
	}
}

// gateSlopes is gateBackward for a function with these coefficients.
func (m *Model) gateSlopes(dgate, dup, dy, gate, up []float32, linear, cubic float64) {
	const block = 256
	var f, one [block]float32
	for i := range one {
		one[i] = 1
	}
	for from := 0; from < len(dy); from += block {
		to := min(from+block, len(dy))
		n := to - from
		copy(f[:], gate[from:to])
		m.math.Gate(f[:n], one[:n], linear, cubic)
		for i, x := range gate[from:to] {
			s := 0.5 // of x = 0
			if x != 0 {
				s = float64(f[i]) / float64(x)
			}
			v := float64(x)
			slope := float64(linear * (1 + float64(3*cubic*float64(v*v))))
			d := s - float64(float64(f[i])*float64((1-s)*slope))
			g := dy[from+i]
			dgate[from+i] = float32(float32(g*up[from+i]) * float32(d))
			dup[from+i] = float32(g * f[i])
		}
	}
}

// softcapBackward multiplies dy by the slope of c tanh(x/c), 1 - tanh(x/c)^2, given x.
func softcapBackward(dy, x []float32, c float32) {
	for i, v := range x {
		t := float64(detmath.Tanh32(v / c))
		dy[i] = float32(dy[i] * float32(1-float64(t*t)))
	}
}
