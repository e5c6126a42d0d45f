package rounding

import (
	"errors"
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// ZeroPoints says what the zero points of an asymmetric tensor are.
type ZeroPoints string

const (
	// WholeZeros are the codes of the weight 0, -128 to 127. Every layout with zero points holds them.
	WholeZeros ZeroPoints = "whole"
	// RealZeros are any float32, added to q * scale. Layout qai4c32p holds them.
	RealZeros ZeroPoints = "real"
)

// gainsByRealZeros tells whether the scheme's algorithm chooses real zero points where they can be stored. rtn is
// TorchAO's formula, which has whole ones; gptq chooses codes on grids with whole ones.
func (s Scheme) FloatZeroPoints() bool {
	switch s.Algorithm {
	case gqf.AlgorithmHQQ, gqf.AlgorithmSearch, gqf.AlgorithmImatrix:
		return s.Mapping == gqf.MappingAsymmetric && s.ScaleDtype == packing.ScaleF32
	}
	return false
}

// QuantizeReal is Quantize with real zero points, for the asymmetric mapping, float32 scales and the algorithms hqq,
// search and imatrix: the weight that a code stands for is float32(float32(q * scale) + zero), and each weight has the
// code nearest to it for the scale and zero point as they are stored. zeros has Groups(k) elements. hqq is the original
// here, see halfQuadraticReal, a search alternating least squares, see fitReal.
//
// A range need not hold 0; one too small for the smallest scale gets that. The scale of a group of equal weights is 1,
// their code 0. It fails with *NonFiniteError alone, and allocates nothing.
func (r *RowQuantizer) QuantizeReal(codes []int8, scales, zeros, x []float32, acc *vec.ErrorSum) error {
	s := r.scheme
	if !s.FloatZeroPoints() {
		return errors.New("real zero points go with the asymmetric mapping, f32 scales and the algorithms hqq, search and imatrix, not " + s.String())
	}
	for i, v := range x {
		if !floats.Finite(v) {
			return &NonFiniteError{Column: i, Value: v}
		}
	}
	if s.Algorithm == gqf.AlgorithmHQQ {
		r.halfQuadraticReal(scales, zeros, x)
	} else {
		r.fitReal(scales, zeros, x)
	}
	if acc == nil {
		acc = &r.unused
	}
	r.realCodes(codes, scales, zeros, x, acc)
	return nil
}

// realCodes chooses the codes for stored scales and zero points and adds up squares as vec.QuantizeGroups does.
func (r *RowQuantizer) realCodes(codes []int8, scales, zeros, x []float32, acc *vec.ErrorSum) {
	for g, s := range scales {
		grid := r.realGrid(s, zeros[g])
		for k := g * r.group; k < min((g+1)*r.group, len(x)); k++ {
			v, q := x[k], grid.code(x[k])
			codes[k] = int8(q)
			e := v - float32(float32(float32(q)*s)+zeros[g])
			lane := k % len(acc.Noise)
			acc.Noise[lane] += float64(float32(e * e))
			acc.Signal[lane] += float64(float32(v * v))
		}
	}
}

// realGrid is what codes of a group stand for.
type realGrid struct{ scale, inverse, zero, qmin, qmax float64 }

func (r *RowQuantizer) realGrid(scale, zero float32) realGrid {
	return realGrid{float64(scale), 1 / float64(scale), float64(zero), float64(r.qmin), float64(r.qmax)}
}

// code is the code nearest to a weight.
func (g *realGrid) code(v float32) float64 {
	return min(max(math.RoundToEven((float64(v)-g.zero)*g.inverse), g.qmin), g.qmax)
}

// halfQuadraticReal is optimize_weights_proximal_legacy of mobiusml/hqq (hqq/core/optimize.py at e0b1d00), its tensor
// being a row here. With lo and hi the least and greatest weight of a group, the scale is (hi-lo) / (2^b-1) and stays
// so; the zero point begins with lo - qmin*scale. Up to 20 times, with beta = 10, 10.1, 10.201 ..:
//
//	q = the nearest codes, e = shrunk(w - (q*scale + zero), beta), zero = mean of w - e - q*scale
//
// until the mean of |w - (q*scale + zero)| over the row no longer falls; what that last round made of the zero point
// stays. The original has zero point z = -zero/scale for codes from 0, computes in float32, and bounds scales to 5e-5
// and more, for float16.
func (r *RowQuantizer) halfQuadraticReal(scales, zeros, x []float32) {
	for g := range scales {
		scales[g], zeros[g] = r.realRange(r.GroupOf(x, g))
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

// groupOf gives the weights of group g of a row.
func (r *RowQuantizer) GroupOf(x []float32, g int) []float32 {
	return x[g*r.group : min((g+1)*r.group, len(x))]
}

// realRange is the scale and zero point of a group's range.
func (r *RowQuantizer) realRange(x []float32) (scale, zero float32) {
	lo, hi := x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	if lo == hi {
		return 1, lo
	}
	scale = float32((float64(hi) - float64(lo)) / float64(r.qmax-r.qmin))
	scale = max(scale, r.smallest)
	return scale, float32(float64(lo) - float64(float64(r.qmin)*float64(scale)))
}

// halfQuadraticZero moves a group's zero point and returns the sum of the errors' sizes that there were.
func (r *RowQuantizer) halfQuadraticZero(zero *float32, scale float32, x []float32, beta float64) (size float64) {
	grid := r.realGrid(scale, *zero)
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
