package rounding

import (
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
)

// FractionalZeroPoints reports whether the scheme's algorithm chooses fractional zero points where
// they can be stored. rtn does not: it is TorchAO's formula, which has integer zero points. At 8 bits
// fractional zero points would be integers.
func (s Scheme) FractionalZeroPoints() bool {
	return s.Mapping == gqf.MappingAsymmetric && s.Bits < 8 && s.Type == 0 && s.Algorithm > gqf.AlgorithmRTN
}

// ZeroShift is the number of bits by which the unit of int8 zero points is below the unit of codes.
func (s Scheme) ZeroShift() int {
	if s.Fractions {
		return 8 - s.Bits
	}
	return 0
}

// ZeroUnit is the unit of int8 zero points: 2^-ZeroShift.
func (s Scheme) ZeroUnit() float32 { return 1 / float32(int(1)<<s.ZeroShift()) }

// storeZero rounds a zero point to a number that can be stored, in units of ZeroUnit.
func (r *RowQuantizer) storeZero(z float64) int8 {
	shift := r.scheme.ZeroShift()
	least, most := float64(r.qmin<<shift), float64((r.qmax+1)<<shift-1)
	return int8(min(max(math.RoundToEven(float64(z*float64(int(1)<<shift))), least), most))
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

// searchFractions improves the scales and zero points of a row, which come from its ranges.
// Alternating least squares find better ones with floating-point zero points. These are rounded to
// numbers that can be stored, and replace the present ones if their weighted error is smaller.
func (r *RowQuantizer) searchFractions(scales []float32, zeros []int8, x []float32) {
	weights := r.rowWeights(x)
	for g := range scales {
		// See searchScales.
		if a := floats.Abs(r.largest(g)); !(a > 0x1p-90 && a < 0x1p60) || r.Recovered(g) {
			continue
		}
		group := newWeighted(r.GroupOf(x, g), r.GroupOf(weights, g))
		scale, zero := r.rangeGrid(group.lo, group.hi)
		if s, offset, ok := r.bestRange(&group); ok {
			r.descend(&scale, &zero, s, offset, &group)
		}
		// This search also tries ranges that clip much, for weights of little importance.
		if s, z, ok := r.searchAsymmetric(g, group.x, group.w); ok {
			r.descend(&scale, &zero, s, float32(float32(-int(z))*s), &group)
		}
		r.settleFraction(&scales[g], &zeros[g], scale, zero, &group)
		r.inv[g] = 1 / scales[g]
	}
}

// fractionRounds is how often settleFraction refits.
const fractionRounds = 3

// settleFraction stores the scale and zero point with the least weighted error: the present ones, or
// ones near s and offset, a floating-point zero point. For the stored scale and its neighbours it
// takes the zero points around the best one, and refits the scale for the best result. Rounds often
// come back to a pair that was tried before.
func (r *RowQuantizer) settleFraction(scale *float32, zero *int8, s, offset float32, g *weighted) {
	unit, shift := r.scheme.ZeroUnit(), r.scheme.ZeroShift()
	least := r.stepError(*scale, float32(float32(*zero)*unit), g)
	type pair struct {
		scale float32
		zero  int8
	}
	tried := append(make([]pair, 0, 1+7*fractionRounds), pair{*scale, *zero})
	try := func(v float32, z int8) {
		if !r.storable(v) || v < 0 || slices.Contains(tried, pair{v, z}) {
			return
		}
		tried = append(tried, pair{v, z})
		if e := r.stepError(v, float32(float32(z)*unit), g); e < least {
			least, *scale, *zero = e, v, z
		}
	}
	for range fractionRounds {
		was := least
		stored := math.Float32bits(r.scheme.ScaleDtype.Round(s))
		for _, n := range []uint32{0, 1, ^uint32(0)} {
			v := math.Float32frombits(r.neighbour(stored, n))
			z := -float64(offset) / float64(v)
			near := r.storeZero(z)
			try(v, near)
			// The other neighbour of z.
			if rest := float64(z*float64(int(1)<<shift)) - float64(near); rest > 0 && near < math.MaxInt8 {
				try(v, near+1)
			} else if rest < 0 && near > math.MinInt8 {
				try(v, near-1)
			}
		}
		best := r.fitSteps(*scale, float32(float32(*zero)*unit), g)
		if try(r.scheme.ScaleDtype.Round(float32(best.xq/best.qq)), *zero); least == was {
			return
		}
		best = r.fitSteps(*scale, float32(float32(*zero)*unit), g)
		var ok bool
		if s, offset, ok = best.solveSteps(float32(float32(*zero) * unit)); !ok {
			return
		}
	}
}

// stepError is the weighted error of a group with a stored scale and zero point.
func (r *RowQuantizer) stepError(scale, zero float32, g *weighted) (sum float64) {
	inv, steps, w := 1/scale, r.steps(zero), g.w[:len(g.x)]
	for i, v := range g.x {
		e := float64(v - float32(steps.nearest(float32(v*inv))*scale))
		sum += float64(float64(float64(w[i])*e) * e)
	}
	return sum
}

// fitSteps adds up a group with a stored scale and zero point, with steps q - z instead of codes q,
// and without the error.
func (r *RowQuantizer) fitSteps(scale, zero float32, g *weighted) floatFit {
	inv, steps, w := 1/scale, r.steps(zero), g.w[:len(g.x)]
	var sp, spp, sxp float64
	for i, v := range g.x {
		p := float64(steps.nearest(float32(v * inv)))
		cp := float64(float64(w[i]) * p)
		sp += cp
		spp += float64(cp * p)
		sxp += float64(cp * float64(v))
	}
	return floatFit{weighted: g, q: sp, qq: spp, xq: sxp}
}

// solveSteps is solve for the sums of fitSteps with a zero point. It takes the scale before its
// rounding.
func (f *floatFit) solveSteps(zero float32) (scale, offset float32, ok bool) {
	s, ok := f.slope()
	o := (f.sum-float64(s*f.q))/f.n - float64(s*float64(zero))
	return float32(s), float32(o), ok && s > 0 && floats.Finite(float32(o))
}

// fractionCodes chooses the nearest codes for stored scales and zero points, and adds squares to acc.
func (r *RowQuantizer) fractionCodes(codes []int8, scales []float32, zeros []int8, x []float32, acc *vec.ErrorSum) {
	unit := r.scheme.ZeroUnit()
	for g, s := range scales {
		zero := float32(float32(zeros[g]) * unit)
		inv, steps := r.inv[g], r.steps(zero)
		for k := g * r.group; k < min((g+1)*r.group, len(x)); k++ {
			v := x[k]
			p := steps.nearest(float32(v * inv))
			codes[k] = int8(p + zero)
			addSquares(acc, k, v, v-float32(p*s))
		}
	}
}
