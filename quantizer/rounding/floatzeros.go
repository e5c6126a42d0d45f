package rounding

import (
	"errors"
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// ZeroPoints is the type of the zero points of an asymmetric tensor.
type ZeroPoints string

const (
	// IntegerZeros are the codes of the weight 0, -128 to 127. Every layout with zero points stores
	// them.
	IntegerZeros ZeroPoints = "whole"
	// FractionalZeros are multiples of 2^(bits-8), in the range of the codes. Layouts lowbit and codes
	// store them.
	FractionalZeros ZeroPoints = "fractional"
	// FloatZeros are float32 numbers, added to q * scale. Layout qai4c32p stores them.
	FloatZeros ZeroPoints = "real"
)

// FloatZeroPoints reports whether the scheme's algorithm chooses floating-point zero points where
// they can be stored. rtn is TorchAO's formula, which has integer zero points, and gptq chooses codes
// on grids with int8 zero points.
func (s Scheme) FloatZeroPoints() bool {
	switch s.Algorithm {
	case gqf.AlgorithmHQQ, gqf.AlgorithmSearch, gqf.AlgorithmImatrix:
		return s.Mapping == gqf.MappingAsymmetric && s.ScaleDtype == packing.ScaleF32
	}
	return false
}

// QuantizeFloatZeros is Quantize with floating-point zero points, for the asymmetric mapping,
// float32 scales and the algorithms hqq, search and imatrix. A code's weight is float32(float32(q *
// scale) + zero), and each weight gets the nearest code for the stored scale and zero point. zeros
// has Groups(k) elements. hqq is the original, see halfQuadraticFloat; a search alternates least
// squares, see fitFloat.
//
// A range need not contain 0; a range too small for the smallest scale is widened to it. A group of
// equal weights has scale 1 and code 0. The only error is *NonFiniteError. Nothing is allocated.
func (r *RowQuantizer) QuantizeFloatZeros(codes []int8, scales, zeros, x []float32, acc *vec.ErrorSum) error {
	s := r.scheme
	if !s.FloatZeroPoints() {
		return errors.New("floating-point zero points need the asymmetric mapping, f32 scales and the algorithm hqq, search or imatrix, not " + s.String())
	}
	for i, v := range x {
		if !floats.Finite(v) {
			return &NonFiniteError{Column: i, Value: v}
		}
	}
	if s.Algorithm == gqf.AlgorithmHQQ {
		r.halfQuadraticFloat(scales, zeros, x)
	} else {
		r.fitFloat(scales, zeros, x)
	}
	if acc == nil {
		acc = &r.unused
	}
	r.recoverFloat(scales, zeros, x)
	r.floatCodes(codes, scales, zeros, x, acc)
	r.recoverCodes(codes, x, func(g int, q float32) float32 { return float32(q*scales[g]) + zeros[g] })
	return nil
}

// floatCodes chooses the codes for stored scales and zero points, and adds squares to acc.
func (r *RowQuantizer) floatCodes(codes []int8, scales, zeros, x []float32, acc *vec.ErrorSum) {
	for g, s := range scales {
		grid := r.floatGrid(s, zeros[g])
		for k := g * r.group; k < min((g+1)*r.group, len(x)); k++ {
			v, q := x[k], grid.code(x[k])
			codes[k] = int8(q)
			addSquares(acc, k, v, v-float32(float32(float32(q)*s)+zeros[g]))
		}
	}
}

// addSquares adds the squares of the weight v in column k and of its error to acc, as
// vec.QuantizeGroups does.
func addSquares(acc *vec.ErrorSum, k int, v, e float32) {
	lane := k % len(acc.Noise)
	acc.Noise[lane] += float64(float32(e * e))
	acc.Signal[lane] += float64(float32(v * v))
}

// floatGrid is the grid of a group with a floating-point zero point.
type floatGrid struct{ scale, inverse, zero, qmin, qmax float64 }

func (r *RowQuantizer) floatGrid(scale, zero float32) floatGrid {
	return floatGrid{float64(scale), 1 / float64(scale), float64(zero), float64(r.qmin), float64(r.qmax)}
}

// code is the code nearest to a weight.
func (g *floatGrid) code(v float32) float64 {
	t := float64((float64(v) - g.zero) * g.inverse)
	if t < g.qmin {
		return g.qmin
	}
	if t > g.qmax {
		return g.qmax
	}
	// Round to even without a call, as roundSmall does.
	const magic = 0x1.8p52
	return float64(t+magic) - magic
}

// halfQuadraticFloat is optimize_weights_proximal_legacy of mobiusml/hqq (hqq/core/optimize.py at
// e0b1d00), with a row as its tensor. With lo and hi the least and greatest weight of a group, the
// scale is (hi-lo) / (2^b-1) and stays so; the zero point starts at lo - qmin*scale. Up to 20
// times, with beta = 10, 10.1, 10.201 ..:
//
//	q = the nearest codes, e = shrunk(w - (q*scale + zero), beta), zero = mean of w - e - q*scale
//
// until the mean of |w - (q*scale + zero)| over the row no longer falls; the zero point of that
// last round stays. The original has zero point z = -zero/scale for codes from 0, computes in
// float32, and bounds scales to at least 5e-5, for float16.
func (r *RowQuantizer) halfQuadraticFloat(scales, zeros, x []float32) {
	for g := range scales {
		scales[g], zeros[g] = r.rangeGrid(bounds(r.GroupOf(x, g)))
	}
	best, beta := math.Inf(1), float64(hqqBeta)
	for range hqqIterations {
		size := 0.0
		for g := range scales {
			size += r.halfQuadraticZero(&zeros[g], scales[g], r.GroupOf(x, g), beta)
		}
		if !(size < best) {
			break
		}
		best, beta = size, float64(beta*hqqKappa)
	}
}

// GroupOf returns the weights of group g of a row.
func (r *RowQuantizer) GroupOf(x []float32, g int) []float32 {
	return x[g*r.group : min((g+1)*r.group, len(x))]
}

// bounds are the least and the greatest weight of a group.
func bounds(x []float32) (lo, hi float32) {
	lo, hi = x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

// rangeGrid is the scale and zero point of a group with the range lo to hi.
func (r *RowQuantizer) rangeGrid(lo, hi float32) (scale, zero float32) {
	if lo == hi {
		return 1, lo
	}
	scale = float32((float64(hi) - float64(lo)) / float64(r.qmax-r.qmin))
	scale = max(scale, r.smallest)
	return scale, float32(float64(lo) - float64(float64(r.qmin)*float64(scale)))
}

// halfQuadraticZero moves a group's zero point and returns the sum of absolute errors before the
// move.
func (r *RowQuantizer) halfQuadraticZero(zero *float32, scale float32, x []float32, beta float64) (size float64) {
	grid := r.floatGrid(scale, *zero)
	var wanted float64
	for _, v := range x {
		rest := float64(v) - float64(grid.code(v)*grid.scale)
		e := rest - grid.zero
		size += math.Abs(e)
		wanted += rest - shrunk(e, beta)
	}
	*zero = float32(wanted / float64(len(x)))
	return size
}
