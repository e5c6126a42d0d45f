package rounding

import (
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
)

// FractionalZeroPoints reports whether the scheme's algorithm chooses fractional zero points where
// they can be stored. rtn is TorchAO's formula, with integer ones. At 8 bits the two are the same.
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

// steps are the values q - z of the codes q of a group with zero point z. lo and hi are qmin and
// qmax less the integer part of z, and fraction is the rest of z.
type steps struct{ lo, hi, fraction float32 }

func (r *RowQuantizer) steps(z float32) steps {
	whole := roundSmall(z)
	return steps{float32(r.qmin) - whole, float32(r.qmax) - whole, z - whole}
}

// nearest is the step nearest to t.
func (s *steps) nearest(t float32) float32 {
	return roundSmall(min(max(t+s.fraction, s.lo), s.hi)) - s.fraction
}

// searchFractions replaces the scales and zero points of a row, which come from its ranges, if
// others have a smaller weighted error: those that alternating least squares find with
// floating-point zero points, rounded to what can be stored.
func (r *RowQuantizer) searchFractions(scales []float32, zeros []int8, x []float32) {
	weights := r.rowWeights(x)
	for g := range scales {
		if r.Recovered(g) {
			continue
		}
		group, w := r.GroupOf(x, g), r.GroupOf(weights, g)
		// See searchScales.
		if a := floats.Abs(r.largest(g)); !(a > 0x1p-90 && a < 0x1p60) || r.Recovered(g) {
			continue
		}
		scale, zero := r.floatRange(group)
		if s, offset, ok := r.bestRange(group, w); ok {
			r.descend(&scale, &zero, s, offset, group, w)
		}
		// This search also tries ranges that clip much, for weights of little importance.
		if s, z, ok := r.searchAsymmetric(g, group, w); ok {
			r.descend(&scale, &zero, s, float32(float32(-int(z))*s), group, w)
		}
		r.settleFraction(&scales[g], &zeros[g], scale, zero, group, w)
		r.inv[g] = 1 / scales[g]
	}
}

// fractionRounds is how often settleFraction refits.
const fractionRounds = 3

// settleFraction stores the scale and zero point with the least weighted error: the present ones, or
// ones near s and offset, a floating-point zero point. For the stored scale and its neighbours it
// takes the zero points around the best one, and refits the scale for the best result.
func (r *RowQuantizer) settleFraction(scale *float32, zero *int8, s, offset float32, x, w []float32) {
	unit, shift := r.scheme.ZeroUnit(), r.scheme.ZeroShift()
	best := r.stepErrors(*scale, float32(float32(*zero)*unit), x, w)
	least := best.error
	try := func(v float32, z int8) {
		if !r.storable(v) || v < 0 {
			return
		}
		if f := r.stepErrors(v, float32(float32(z)*unit), x, w); f.error < least {
			least, best, *scale, *zero = f.error, f, v, z
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
		try(r.scheme.ScaleDtype.Round(float32(best.xp/best.pp)), *zero)
		if least == was {
			return
		}
		var ok bool
		if s, offset, ok = best.solve(float32(float32(*zero) * unit)); !ok {
			return
		}
	}
}

// stepSums holds weighted sums over a group's weights x, their steps p = q - z and errors.
type stepSums struct{ error, n, p, pp, x, xp float64 }

// stepErrors adds up a group with a stored scale and zero point.
func (r *RowQuantizer) stepErrors(scale, zero float32, x, w []float32) (f stepSums) {
	inv, steps := 1/scale, r.steps(zero)
	for i, v := range x {
		step, c := steps.nearest(float32(v*inv)), float64(w[i])
		e := float64(v - float32(step*scale))
		p, v := float64(step), float64(v)
		cp := float64(c * p)
		f.error += float64(float64(c*e) * e)
		f.n += c
		f.p += cp
		f.pp += float64(cp * p)
		f.x += float64(c * v)
		f.xp += float64(cp * v)
	}
	return f
}

// solve returns the least-squares scale and floating-point zero point of the codes that gave these
// steps with a zero point. ok is false if all codes are equal or the scale is not positive.
func (f *stepSums) solve(zero float32) (scale, offset float32, ok bool) {
	d := float64(f.n*f.pp) - float64(f.p*f.p)
	if !(d > 0) {
		return 0, 0, false
	}
	s := (float64(f.n*f.xp) - float64(f.x*f.p)) / d
	o := (f.x-float64(s*f.p))/f.n - float64(s*float64(zero))
	return float32(s), float32(o), s > 0 && floats.Finite(float32(o))
}

// fractionCodes chooses the nearest codes for stored scales and zero points, and adds squares to acc
// as vec.QuantizeGroups does.
func (r *RowQuantizer) fractionCodes(codes []int8, scales []float32, zeros []int8, x []float32, acc *vec.ErrorSum) {
	unit := r.scheme.ZeroUnit()
	for g, s := range scales {
		zero := float32(float32(zeros[g]) * unit)
		inv, steps := r.inv[g], r.steps(zero)
		for k := g * r.group; k < min((g+1)*r.group, len(x)); k++ {
			v := x[k]
			p := steps.nearest(float32(v * inv))
			codes[k] = int8(p + zero)
			e := v - float32(p*s)
			lane := k % len(acc.Noise)
			acc.Noise[lane] += float64(float32(e * e))
			acc.Signal[lane] += float64(float32(v * v))
		}
	}
}
