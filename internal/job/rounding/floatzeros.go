package rounding

import (
	"errors"
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

type ZeroPoints string

const (
	// IntegerZeros are the codes of the weight 0, -128 to 127, in every layout with zero points.
	IntegerZeros ZeroPoints = "integer"
	// FractionalZeros are multiples of 2^(bits-8) among the codes, in layouts lowbit and codes.
	FractionalZeros ZeroPoints = "fractional"
	// FloatZeros are float32 numbers, added to q * scale, in layout qai4c32p.
	FloatZeros ZeroPoints = "floating-point"
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
			AddSquares(acc, k, v, v-float32(float32(float32(q)*s)+zeros[g]))
		}
	}
}

// addSquares adds squares of weight v in column k and its error to acc, as vec.QuantizeGroups does.
func AddSquares(acc *vec.ErrorSum, k int, v, e float32) {
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

// solve returns the stored least-squares scale and zero point of the codes. ok is false if all
// codes are equal or the scale is not positive.
func (f *floatFit) solve() (scale, zero float32, ok bool) {
	d := float64(f.n*f.qq) - float64(f.q*f.q)
	scale = float32((float64(f.n*f.xq) - float64(f.sum*f.q)) / d)
	zero = float32((f.sum - float64(float64(scale)*f.q)) / f.n)
	return scale, zero, d > 0 && scale > 0 && floats.Finite(zero)
}
