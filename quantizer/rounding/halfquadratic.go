package rounding

import (
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
)

// HQQ (mobiusml/hqq, optimize_weights_proximal_legacy) for layouts with integer zero points, or
// none; halfQuadraticFloat is the original. The original moves the zero point of each group until
// the error, without its few largest parts, has mean 0. Its zero points are floating-point numbers,
// and its scale stays the range's. With integer zero points the scale is fitted again after each
// move, by least squares; with a mapping without zero points only the scale is fitted. Iteration
// ends when the mean absolute error of the group stops falling; the original looks at the whole
// tensor.
const (
	hqqIterations = 20
	hqqPower      = 0.7
	hqqBeta       = 10
	hqqKappa      = 1.01
	// Errors up to hqqLarge are shrunk to 0 by every beta from hqqBeta on: |e| < beta^(-1/(2-p))
	// for the last beta, 10 * 1.01^19.
	hqqLarge = 0.14
)

// halfQuadratic replaces scales and zero points of a row.
func (r *RowQuantizer) halfQuadratic(scales []float32, zeros []int8, x []float32) {
	for g := range scales {
		n := min(r.group, len(x))
		group := x[:n]
		x = x[n:]
		if r.lo[g] == 0 && r.hi[g] == 0 || r.Recovered(g) {
			continue
		}
		var z float32
		if zeros != nil {
			z = float32(float32(zeros[g]) * r.scheme.ZeroUnit())
		}
		s, z := r.halfQuadraticGroup(group, scales[g], z, zeros != nil)
		scales[g], r.inv[g] = s, 1/s
		if zeros != nil {
			zeros[g] = r.storeZero(float64(z))
		}
	}
}

// halfQuadraticGroup returns the best stored scale and zero point of the iteration from s and z.
func (r *RowQuantizer) halfQuadraticGroup(x []float32, s, z float32, moves bool) (scale, zero float32) {
	unit := r.scheme.ZeroUnit()
	best, beta := math.Inf(1), float64(hqqBeta)
	scale, zero = s, z
	for range hqqIterations {
		inv, steps := 1/s, r.steps(z)
		var size, offset float64
		for _, v := range x {
			q := steps.nearest(float32(v * inv))
			e := float64(v - float32(q*s))
			size += math.Abs(e)
			// q + z - (W-e)/s, the zero point that is best for this weight
			offset += float64(q+z) - (float64(v)-shrunk(e, beta))/float64(s)
		}
		if !(size < best) {
			break
		}
		best, scale, zero = size, s, z
		if moves {
			z = float32(float32(r.storeZero(offset/float64(len(x)))) * unit)
		}
		if s = r.refit(x, s, z, beta); !r.storable(s) {
			break
		}
		beta = float64(beta * hqqKappa)
	}
	return scale, zero
}

// refit is the stored scale that fits the codes of x with scale s and zero point z best, without
// the large errors.
func (r *RowQuantizer) refit(x []float32, s, z float32, beta float64) float32 {
	inv, steps := 1/s, r.steps(z)
	var wq, qq float64
	for _, v := range x {
		q := steps.nearest(float32(v * inv))
		e := shrunk(float64(v-float32(q*s)), beta)
		wq += float64((float64(v) - e) * float64(q))
		qq += float64(q * q)
	}
	if qq == 0 {
		return s
	}
	return r.scheme.ScaleDtype.Round(float32(wq / qq))
}

// shrunk is the part of an error that HQQ attributes to outliers: sign(e) * max(0, |e| -
// |e|^(p-1)/beta).
func shrunk(e, beta float64) float64 {
	a := math.Abs(e)
	if a < hqqLarge {
		return 0
	}
	return math.Copysign(max(0, a-detmath.Pow(a, hqqPower-1)/beta), e)
}

// steps are the values q - z of the codes q of a group with zero point z. z is an integer plus
// fraction, and lo and hi are qmin and qmax minus this integer.
type steps struct{ lo, hi, fraction float32 }

func (r *RowQuantizer) steps(z float32) steps {
	whole := roundSmall(z)
	return steps{float32(r.qmin) - whole, float32(r.qmax) - whole, z - whole}
}

// nearest is the step nearest to t.
func (s *steps) nearest(t float32) float32 {
	return roundSmall(min(max(t+s.fraction, s.lo), s.hi)) - s.fraction
}
