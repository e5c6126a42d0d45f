package rounding

import (
	"math"

	"github.com/lowbit-go/gq/internal/floats"
)

// floatRounds limits how often descend fits a group; most groups end earlier.
const floatRounds = 8

// floatCuts are the ranges that fitFloat starts from: each end of a group's range moves inwards by
// these parts of a step, of 2^b in the range. The signal-to-noise ratio of normally and
// t-distributed weights (5 degrees of freedom) is at most 0.06 dB below a grid of 12 x 12 ranges.
var floatCuts = [...]float64{-0.2, 0.3, 0.8, 1.3}

// fitFloat gives every group the scale and floating-point zero point of the least weighted error
// that alternating least squares find from ranges near the group's. Weigh describes the weights.
// llama.cpp's make_qkx3_quants does the same from other ranges, with a single step.
func (r floatSearch) fitFloat(scales, zeros, x []float32) {
	weights := r.rowWeights(x)
	for g := range scales {
		group := newWeighted(r.GroupOf(x, g), r.GroupOf(weights, g))
		scales[g], zeros[g] = r.rangeGrid(group.lo, group.hi)
		if s, z, ok := r.bestRange(&group); ok {
			r.descend(&scales[g], &zeros[g], s, z, &group)
		}
	}
}

// weighted is a group x with weights w of its errors, its range, and the sums of w, w x and w x^2.
type weighted struct {
	x, w           []float32
	lo, hi         float32
	n, sum, square float64
}

func newWeighted(x, w []float32) weighted {
	g := weighted{x: x, w: w}
	g.lo, g.hi = bounds(x)
	var n, sum, square float64
	for i, v := range x {
		c, v := float64(w[i]), float64(v)
		cv := float64(c * v)
		n += c
		sum += cv
		square += float64(cv * v)
	}
	g.n, g.sum, g.square = n, sum, square
	return g
}

// bestRange tries the ranges of floatCuts and returns the least-squares scale and zero point with
// the least error. ok is false if every range gives all weights the same code.
func (r floatSearch) bestRange(g *weighted) (scale, zero float32, ok bool) {
	steps := float64(r.qmax - r.qmin)
	part := (float64(g.hi) - float64(g.lo)) / (steps + 1)
	least := math.Inf(1)
	for _, below := range floatCuts {
		for _, above := range floatCuts {
			low, high := float64(g.lo)+float64(below*part), float64(g.hi)-float64(above*part)
			s := (high - low) / steps
			f := r.fit(float32(s), float32(low-float64(float64(r.qmin)*s)), g)
			if e := f.residual(); e < least {
				if s, z, fits := f.solve(); fits && r.storable(s) {
					least, scale, zero, ok = e, s, z, true
				}
			}
		}
	}
	return scale, zero, ok
}

// descend continues from s and z while the error falls, and stores the best scale and zero point
// unless the present values are better.
func (r floatSearch) descend(scale, zero *float32, s, z float32, g *weighted) {
	was := r.fit(*scale, *zero, g)
	best, last := was.error, math.Inf(1)
	for range floatRounds {
		f := r.fit(s, z, g)
		if !(f.error < last) {
			return
		}
		if last = f.error; last < best {
			best, *scale, *zero = last, s, z
		}
		var ok bool
		if s, z, ok = f.solve(); !ok || !r.storable(s) {
			return
		}
	}
}

// floatFit holds weighted sums over weights x and codes q; error is that of dequantized weights.
type floatFit struct {
	*weighted
	error, q, qq, xq float64
}

func (r floatSearch) fit(scale, zero float32, g *weighted) floatFit {
	grid, w := r.floatGrid(scale, zero), g.w[:len(g.x)]
	var sum, sq, sqq, sxq float64
	for i, v := range g.x {
		q, c, v := grid.code(v), float64(w[i]), float64(v)
		e := v - float64(float32(float32(q)*scale)+zero)
		cq := float64(c * q)
		sum += float64(float64(c*e) * e)
		sq += cq
		sqq += float64(cq * q)
		sxq += float64(cq * v)
	}
	return floatFit{g, sum, sq, sqq, sxq}
}

// residual is the error of the codes with least-squares scale and zero point; NaN for equal codes.
func (f *floatFit) residual() float64 {
	qq := f.qq - float64(f.q/f.n*f.q)
	xq := f.xq - float64(f.sum/f.n*f.q)
	return f.square - float64(f.sum/f.n*f.sum) - float64(xq/qq*xq)
}

// slope is the least-squares scale of the codes with any zero point; not ok if all codes are equal.
func (f *floatFit) slope() (scale float64, ok bool) {
	d := float64(f.n*f.qq) - float64(f.q*f.q)
	return (float64(f.n*f.xq) - float64(f.sum*f.q)) / d, d > 0
}

// solve returns the stored least-squares scale and zero point of the codes. ok is false if all
// codes are equal or the scale is not positive.
func (f *floatFit) solve() (scale, zero float32, ok bool) {
	s, ok := f.slope()
	scale = float32(s)
	zero = float32((f.sum - float64(float64(scale)*f.q)) / f.n)
	return scale, zero, ok && scale > 0 && floats.Finite(zero)
}
