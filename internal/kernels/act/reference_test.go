package act

import (
	"math"

	"github.com/lowbit-go/gq/internal/floats"
)

// The formulas of KleidiAI's packers of activations, one value at a time: the oracle for random
// rows. TestKleidiAI compares the package with the packers' recorded output.

// absMax is the largest magnitude in x, NaN or an infinity if x has one.
func absMax(x []float32) float32 {
	m := float32(0)
	for _, v := range x {
		m = max(m, float32(math.Abs(float64(v))))
	}
	return m
}

func finite(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

// symmetric quantizes x to round(x * factor), at most 127 in magnitude as factor is
// 127 / absMax, and returns the sum of the codes.
func symmetric(q []int8, x []float32, factor float32, round func(float64) float64) (sum int32) {
	for k, v := range x {
		q[k] = int8(max(-128, min(round(float64(float32(v*factor))), 127)))
		sum += int32(q[k])
	}
	return sum
}

// blocksF16 is qsi8d32p: the scale comes first and the factor from it.
func blocksF16(x []float32, block int) (codes []int8, scales []uint16, ok bool) {
	codes = make([]int8, len(x))
	for g := 0; g < len(x); g += block {
		scale, factor := absMax(x[g:][:block])/127, float32(0)
		if scale != 0 {
			factor = 1 / scale
		}
		stored := floats.F16FromF32(scale)
		if !finite(factor) || !finite(floats.F16ToF32(stored)) {
			return nil, nil, false
		}
		scales = append(scales, stored)
		symmetric(codes[g:], x[g:][:block], factor, math.Round)
	}
	return codes, scales, true
}

// blocksF32 is qsi8d32pscalef32: the factor comes first and the scale from it.
func blocksF32(x []float32, block int) (codes []int8, scales, sums []float32, ok bool) {
	codes = make([]int8, len(x))
	for g := 0; g < len(x); g += block {
		factor, scale := float32(0), float32(0)
		if m := absMax(x[g:][:block]); m != 0 {
			factor = 127 / m
			scale = 1 / factor
		}
		if !finite(factor) || !finite(scale) {
			return nil, nil, nil, false
		}
		sum := symmetric(codes[g:], x[g:][:block], factor, math.RoundToEven)
		scales, sums = append(scales, scale), append(sums, float32(float32(sum)*scale))
	}
	return codes, scales, sums, true
}

// asymmetric quantizes a row to int8 with a zero point: the value of a
// code is (q - zero) * scale. Zero is in the range, its code is exact, and the
// zero point is one of the codes. Codes past the end of x repeat the last one.
func asymmetric(q []int8, x []float32) (zero int32, scale float32, ok bool) {
	lo, hi := float32(0), float32(0)
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v) // NaN if there is one
	}
	factor := float32(1)
	if lo != hi {
		factor = 255 / (hi - lo)
	}
	scale = 1 / factor
	if !finite(factor) || !finite(scale) || !finite(lo) {
		return 0, 0, false
	}
	a, c := float32(lo*factor), float32(hi*factor)
	point := float32(127 - c)
	if float32(-128+a)+float32(127+c) > 0 {
		point = -128 - a
	}
	point = max(-128, min(point, 127))
	zero = int32(math.RoundToEven(float64(point)))
	for k, v := range x {
		r := int32(math.Round(float64(float32(v * factor))))
		q[k] = int8(max(-128, min(r+zero, 127)))
	}
	return zero, scale, true
}
