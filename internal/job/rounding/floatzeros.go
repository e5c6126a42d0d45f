package rounding

import (
	"errors"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

type ZeroPoints string

const (
	// IntegerZeros are the codes of the weight 0, -128 to 127, in every layout with zero points.
	IntegerZeros ZeroPoints = "whole"
	// FractionalZeros are multiples of 2^(bits-8) among the codes, in layouts lowbit and codes.
	FractionalZeros ZeroPoints = "fractional"
	// FloatZeros are float32 numbers, added to q * scale, in layout qai4c32p.
	FloatZeros ZeroPoints = "real"
)

// FloatZeroPoints reports whether the algorithm chooses floating-point zero points where the layout
// stores them. rtn is TorchAO's formula with integer zero points; gptq has int8 zero points.
func (s Scheme) FloatZeroPoints() bool {
	searched := s.Algorithm == gqf.AlgorithmSearch || s.Algorithm == gqf.AlgorithmImatrix
	return searched && s.Mapping == gqf.MappingAsymmetric && s.ScaleDtype == packing.ScaleF32
}

// QuantizeFloatZeros is Quantize with floating-point zero points, for the asymmetric mapping,
// float32 scales and the algorithms search and imatrix. Alternating least squares choose scale and
// zero point (fitFloat). The weight of code q is float32(float32(q * scale) + zero), and each
// weight gets the nearest code. zeros has Groups(k) elements.
//
// A range need not contain 0; a range too small for the smallest scale is widened. A group of equal
// weights has scale 1 and code 0. The only error is *NonFiniteError. Nothing is allocated.
func (r *RowQuantizer) QuantizeFloatZeros(codes []int8, scales, zeros, x []float32, acc *vec.ErrorSum) error {
	if s := r.scheme; !s.FloatZeroPoints() {
		return errors.New("floating-point zero points need the asymmetric mapping, f32 scales and the algorithm search or imatrix, not " + s.String())
	}
	if err := nonFinite(x); err != nil {
		return err
	}
	if acc == nil {
		acc = &r.unused
	}
	f := floatSearch{&r.weighing}
	f.fitFloat(scales, zeros, x)
	r.recoverFloat(scales, zeros, x)
	f.floatCodes(codes, scales, zeros, x, acc)
	r.recoverCodes(codes, x, func(g int, q float32) float32 { return float32(q*scales[g]) + zeros[g] })
	return nil
}

// floatSearch chooses floating-point zero points.
type floatSearch struct{ *weighing }

// floatCodes chooses the codes for stored scales and zero points, and adds squares to acc.
func (r floatSearch) floatCodes(codes []int8, scales, zeros, x []float32, acc *vec.ErrorSum) {
	for g, s := range scales {
		grid := r.floatGrid(s, zeros[g])
		for k := g * r.group; k < min((g+1)*r.group, len(x)); k++ {
			v, q := x[k], grid.code(x[k])
			codes[k] = int8(q)
			addSquares(acc, k, v, v-float32(float32(float32(q)*s)+zeros[g]))
		}
	}
}

// addSquares adds squares of weight v in column k and its error to acc, as vec.QuantizeGroups does.
func addSquares(acc *vec.ErrorSum, k int, v, e float32) {
	lane := k % len(acc.Noise)
	acc.Noise[lane] += float64(float32(e * e))
	acc.Signal[lane] += float64(float32(v * v))
}

type floatGrid struct{ scale, inverse, zero, qmin, qmax float64 }

func (r floatSearch) floatGrid(scale, zero float32) floatGrid {
	return floatGrid{float64(scale), 1 / float64(scale), float64(zero), float64(r.qmin), float64(r.qmax)}
}

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

func (r *rowGroups) GroupOf(x []float32, g int) []float32 {
	return x[g*r.group : min((g+1)*r.group, len(x))]
}

func bounds(x []float32) (lo, hi float32) {
	lo, hi = x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

func (r floatSearch) rangeGrid(lo, hi float32) (scale, zero float32) {
	if lo == hi {
		return 1, lo
	}
	scale = float32((float64(hi) - float64(lo)) / float64(r.qmax-r.qmin))
	if scale < r.smallest { // codes around 0 are enough for the range
		return r.smallest, float32((float64(lo) + float64(hi)) / 2)
	}
	return scale, float32(float64(lo) - float64(float64(r.qmin)*float64(scale)))
}
