package act

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
)

// Asymmetric quantizes a row x to codes q with values (q - zero) * rec. In float32, with every step
// rounded, and lo the smallest and hi the largest of x and 0:
//
//	factor = 255 / (hi - lo), or 1 if lo = hi
//	rec    = 1 / factor
//	zero   = -128 - lo*factor if (-128 + lo*factor) + (127 + hi*factor) > 0, else 127 - hi*factor;
//	         cut to -128 .. 127, then rounded to an integer, ties to even
//	q      = x*factor rounded to an integer, ties away from zero; plus zero, cut to -128 .. 127
//
// Hence 0 is in the range and its code is exact. q has at least len(x) codes; codes past len(x) are
// set to 0. If a value of x, factor or rec is not finite, ok is false and all other results are 0.
func Asymmetric(q []int8, x []float32) (zero int32, rec float32, ok bool) {
	checkCodes(len(q), len(x))
	lo, hi, finite := span(x)
	factor, zero, rec := asymmetricScale(lo, hi)
	if !finite || !floats.Finite(factor) || !floats.Finite(rec) {
		clear(q)
		return 0, 0, false
	}
	quantizeAway(q[:len(x)], x, []float32{factor}, len(x), zero)
	clear(q[len(x):])
	return zero, rec, true
}

func asymmetricScale(lo, hi float32) (factor float32, zero int32, rec float32) {
	factor = 1
	if lo != hi {
		factor = 255 / (hi - lo)
	}
	rec = 1 / factor
	a, c := float32(lo*factor), float32(hi*factor)
	point := float32(127 - c)
	if float32(-128+a)+float32(127+c) > 0 {
		point = float32(-128 - a)
	}
	if floats.Finite(point) {
		zero = int32(math.RoundToEven(float64(max(-128, min(point, 127)))))
	}
	return factor, zero, rec
}

// BlocksF16 quantizes a row x in blocks of block columns (the last may be short) to codes
// q with values q * scales[g] in block g. In float32, with every step rounded, and top the largest
// magnitude in the block:
//
//	scale     = top / 127
//	q         = x * (1/scale) rounded to an integer, ties away from zero; 0 if scale is 0
//	scales[g] = scale rounded to F16, ties to even
//
// The codes are chosen with the scale before it is rounded to F16, as KleidiAI does. scales has an
// element for each block; q has at least len(x) codes, and codes past len(x) are set to 0. If a
// value of x or the inverse of a scale is not finite, or a scale is beyond F16, ok is false and all
// other results are 0.
func BlocksF16(q []int8, scales []float32, x []float32, block int) (ok bool) {
	return blocks(q, scales, nil, x, block, false)
}

// BlocksSums is BlocksF16 with the sums of ggml's Q8_1: sums[g] is float32(the sum of q) times the
// scale before it is rounded to F16, rounded to F16. If a sum is beyond F16, ok is false and all
// other results are 0.
func BlocksSums(q []int8, scales, sums, x []float32, block int) (ok bool) {
	checkBlocks("sums", len(sums), len(x), block)
	return blocks(q, scales, sums, x, block, false)
}

const run = 32 // blocks at a time

// BlocksF32 quantizes a row x in blocks of block columns (the last may be short) to codes
// q with values q * scales[g] in block g. In float32, with every step rounded, and top the largest
// magnitude in the block:
//
//	factor    = 127 / top, or 0 if top is 0
//	q         = x*factor rounded to an integer, ties to even
//	scales[g] = 1 / factor, or 0 if top is 0
//	sums[g]   = float32(the sum of q) * scales[g]
//
// scales and sums have an element for each block; q has at least len(x) codes, and codes past
// len(x) are set to 0. If a value of x, a factor or a scale is not finite, ok is false and all
// other results are 0.
func BlocksF32(q []int8, scales, sums []float32, x []float32, block int) (ok bool) {
	checkBlocks("sums", len(sums), len(x), block)
	return blocks(q, scales, sums, x, block, true)
}

// blocks is BlocksF32 if wide is set, else BlocksSums, or BlocksF16 if sums is nil.
func blocks(q []int8, scales, sums, x []float32, block int, wide bool) (ok bool) {
	checkCodes(len(q), len(x))
	checkBlocks("scales", len(scales), len(x), block)
	var lo, hi, factors, tops [run]float32
	var total [run]int32
	for g := 0; g < len(scales); g += run {
		n := min(run, len(scales)-g)
		from, to := g*block, min((g+n)*block, len(x))
		ok := vec.GroupRange(lo[:n], hi[:n], x[from:to], block)
		for i := range n {
			top, factor, scale := max(-lo[i], hi[i]), float32(0), float32(0)
			switch {
			case !wide:
				if scale = top / 127; scale != 0 {
					factor = 1 / scale
				}
				tops[i] = scale
				scale = floats.F16ToF32(floats.F16FromF32(scale))
			case top != 0:
				factor = 127 / top
				scale = 1 / factor
			}
			factors[i], scales[g+i] = factor, scale
			ok = ok && floats.Finite(factor) && floats.Finite(scale)
		}
		switch {
		case !ok:
		case wide:
			quantizeEven(q[from:to], x[from:to], factors[:n], block)
		default:
			quantizeAway(q[from:to], x[from:to], factors[:n], block, 0)
		}
		if ok && sums != nil {
			groupSums(total[:n], q[from:to], block)
			for i, sum := range total[:n] {
				if wide {
					sums[g+i] = float32(float32(sum) * scales[g+i])
					continue
				}
				sums[g+i] = floats.F16ToF32(floats.F16FromF32(float32(float32(sum) * tops[i])))
				ok = ok && floats.Finite(sums[g+i])
			}
		}
		if !ok {
			clear(q)
			clear(scales)
			clear(sums)
			return false
		}
	}
	clear(q[len(x):])
	return true
}

// GroupSums adds the codes of each group of group columns: dst[g] is the sum of q[g*group :
// (g+1)*group], and the last element is the sum of all codes from its group on. Codes past the last
// column are 0 and may have any number. Sums are exact modulo 2^32.
func GroupSums(dst []int32, q []int8, group int) {
	if group <= 0 || len(dst) > 0 && len(q)/group < len(dst)-1 {
		panic(fmt.Sprintf("act: %d sums of groups of %d out of %d codes", len(dst), group, len(q)))
	}
	if len(dst) > 0 {
		groupSums(dst, q, group)
	}
}

// span is the range of x and 0. If finite is false, lo and hi are undefined.
func span(x []float32) (lo, hi float32, finite bool) {
	if len(x) == 0 {
		return 0, 0, true
	}
	var low, high [1]float32
	finite = vec.GroupRange(low[:], high[:], x, len(x))
	return low[0], high[0], finite
}

func checkCodes(codes, columns int) {
	if codes < columns {
		panic(fmt.Sprintf("act: %d codes for %d activations", codes, columns))
	}
}

func checkBlocks(what string, got, columns, block int) {
	if want := vec.Groups(columns, block); got != want {
		panic(fmt.Sprintf("act: %d %s for %d activations in blocks of %d, want %d", got, what, columns, block, want))
	}
}

// accelerated selects the assembly of quantizeAway, quantizeEven and groupSums, see act_asm.go.
// Package vec computes the range of a row.
var accelerated = cpu.NewFamily("act", false)

// Portable loops over columns: they define the results that tests compare the assembly with.

// quantizeAwayGeneric sets q[i] to x[i]*factor rounded to an integer, ties away from zero, plus
// zero, cut to int8. Each block of columns has its own factor. The products are below 2^22 in
// magnitude.
//
// Adding 1/2 and truncating would be wrong for 0.49999997, the largest float32 below 1/2: the sum
// rounds to 1.
func quantizeAwayGeneric(q []int8, x, factors []float32, block int, zero int32) {
	for g, factor := range factors {
		from, to := g*block, min((g+1)*block, len(x))
		codes := q[from:to]
		for i, v := range x[from:to] {
			v = float32(v * factor)
			r := int32(v)
			switch rest := v - float32(r); { // exact
			case rest >= 0.5:
				r++
			case rest <= -0.5:
				r--
			}
			codes[i] = int8(max(-128, min(r+zero, 127)))
		}
	}
}

// roundMagic is 1.5 * 2^23. Adding roundMagic to a float32 below 2^22 in magnitude leaves no bits
// for a fraction: the addition rounds to the nearest integer, ties to even. Subtracting roundMagic
// again is exact.
const roundMagic float32 = 0x1.8p23

// quantizeEvenGeneric sets q[i] to x[i]*factor rounded to an integer, ties to even, cut to int8.
// Each block of columns has its own factor. The products are below 2^22 in magnitude.
func quantizeEvenGeneric(q []int8, x, factors []float32, block int) {
	for g, factor := range factors {
		from, to := g*block, min((g+1)*block, len(x))
		codes := q[from:to]
		for i, v := range x[from:to] {
			r := int32(float32(float32(v*factor)+roundMagic) - roundMagic)
			codes[i] = int8(max(-128, min(r, 127)))
		}
	}
}

// groupSumsGeneric is GroupSums for a positive number of groups.
func groupSumsGeneric(dst []int32, q []int8, group int) {
	for g := range dst {
		run := q
		if g < len(dst)-1 {
			run = q[:group]
		}
		q = q[len(run):]
		sum := int32(0)
		for _, v := range run {
			sum += int32(v)
		}
		dst[g] = sum
	}
}
