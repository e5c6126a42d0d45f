package floats

import "math"

const (
	f32SignMask = 0x80000000
	f32InfBits  = 0x7f800000
	f32QuietBit = 0x00400000
)

// BF16ToF32 widens a BF16 value: its bits are the upper half of the float32.
func BF16ToF32(b uint16) float32 {
	return math.Float32frombits(uint32(b) << 16)
}

// BF16FromF32 rounds f to BF16, to nearest with ties to even. Values beyond the
// largest BF16 by half a unit in the last place or more become infinities.
func BF16FromF32(f float32) uint16 {
	u := math.Float32bits(f)
	if u&^f32SignMask > f32InfBits {
		return uint16(u>>16) | f32QuietBit>>16
	}
	// 0x7fff rounds up everything above a tie; the lowest kept bit decides ties. A
	// carry out of the mantissa is the right result, up to infinity.
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

const (
	f16SignMask = 0x8000
	f16InfBits  = 0x7c00
	f16QuietBit = 0x0200
	f16MinNorm  = 0x0400 // 2^-14

	// f16Rebias is the difference of the exponents' biases of float32 and F16, in place.
	f16Rebias = (127 - 15) << 23
	// f16MantDiff is 13: a float32 has 23 bits of mantissa, an F16 has 10.
	f16MantDiff = 23 - 10
)

// F16ToF32 widens an IEEE 754 binary16 value.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&f16SignMask) << 16
	mag := uint32(h &^ f16SignMask)
	switch {
	case mag < f16MinNorm:
		// A subnormal is mag units of 2^-24: the product is exact and a normal float32.
		f := float32(float32(mag) * 0x1p-24)
		return math.Float32frombits(sign | math.Float32bits(f))
	case mag < f16InfBits:
		return math.Float32frombits(sign | (mag<<f16MantDiff + f16Rebias))
	case mag == f16InfBits:
		return math.Float32frombits(sign | f32InfBits)
	default:
		return math.Float32frombits(sign | f32InfBits | f32QuietBit | (mag&0x3ff)<<f16MantDiff)
	}
}

// F16FromF32 rounds f to IEEE 754 binary16, to nearest with ties to even. Values from 65520 on
// (half a unit above the largest value, 65504) become infinity.
func F16FromF32(f float32) uint16 {
	u := math.Float32bits(f)
	sign := uint16(u >> 16 & f16SignMask)
	u &^= f32SignMask
	switch {
	case u > f32InfBits:
		return sign | f16InfBits | f16QuietBit | uint16(u>>f16MantDiff&0x3ff)
	case u >= 0x477ff000: // 65520
		return sign | f16InfBits
	case u >= 0x38800000: // 2^-14, the smallest normal value
		u -= f16Rebias
		return sign | uint16((u+0xfff+u>>f16MantDiff&1)>>f16MantDiff)
	default:
		// In 0.5 .. 1 a float32's last place is 2^-24, the unit of F16's subnormals: the addition does
		// the rounding and the low bits of the sum are the result (0x400 if rounded up to 2^-14, the
		// encoding of 2^-14).
		sum := math.Float32frombits(u) + 0.5
		return sign | uint16(math.Float32bits(sum)-0x3f000000)
	}
}

// RoundF16 is F16ToF32(F16FromF32(f)). Normal numbers, nearly all, take a few instructions.
func RoundF16(f float32) float32 {
	const least, end = 0x38800000, 0x477ff000 // 2^-14, 65520
	u := math.Float32bits(f)
	if u&^f32SignMask-least < end-least {
		return math.Float32frombits((u + 0xfff + u>>f16MantDiff&1) &^ (1<<f16MantDiff - 1))
	}
	return F16ToF32(F16FromF32(f))
}

var (
	f8e4m3 = tableF8E4M3()
	f8e5m2 = tableF8E5M2()
)

// F8E4M3ToF32 widens a value of the FN variant of the 8-bit format with 4 exponent
// bits: no infinities, 0x7f and 0xff are NaN, the largest value is 448.
func F8E4M3ToF32(b byte) float32 { return f8e4m3[b] }

// F8E5M2ToF32 widens a value of the 8-bit format with 5 exponent bits: the upper half of an F16.
func F8E5M2ToF32(b byte) float32 { return f8e5m2[b] }

// E2M1ToF32 widens the low four bits, a value of the format with 2 exponent bits: up to 6.
func E2M1ToF32(b byte) float32 { return e2m1[b&15] }

var e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// E8M0ToF32 widens an exponent without sign and mantissa: 2^(b-127), and NaN for 255 (OCP
// Microscaling Formats specification).
func E8M0ToF32(b byte) float32 {
	switch b {
	case 0: // subnormal
		return 0x1p-127
	case 255:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(b) << 23)
}

func tableF8E4M3() (t [256]float32) {
	for i := range t {
		sign := uint32(i&0x80) << 24
		exp, mant := uint32(i>>3&0xf), uint32(i&7)
		switch {
		case exp == 0: // subnormal: units of 2^-9, exact
			f := float32(float32(mant) * 0x1p-9)
			t[i] = math.Float32frombits(sign | math.Float32bits(f))
		case exp == 0xf && mant == 7:
			t[i] = math.Float32frombits(sign | f32InfBits | f32QuietBit)
		default:
			t[i] = math.Float32frombits(sign | (exp+127-7)<<23 | mant<<20)
		}
	}
	return t
}

func tableF8E5M2() (t [256]float32) {
	for i := range t {
		t[i] = F16ToF32(uint16(i) << 8)
	}
	return t
}

// Finite reports whether v is neither NaN nor infinite.
func Finite(v float32) bool { return v-v == 0 }

func Abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// FMA32 returns x*y + z rounded once, to nearest with ties to even, like Arm's FMLA and x86's
// VFMADD231PS for every input. Go has such a function for float64 only. The result is some NaN for
// NaN, infinity times 0, and the difference of infinities.
//
// The product of two float32 is exact in float64, but its sum with z is not. Rounding the sum to
// float64 and then to float32 differs from rounding once only if the first result is a tie of the
// second rounding: the second rounding does not know from which side. Elsewhere the sum can be
// rounded directly. A tie is rounded to odd first (S. Boldo and G. Melquiond, "Emulation of FMA and
// correctly rounded sums", 2008): an inexact sum becomes its odd neighbour. The odd neighbour is no
// tie of float32.
//
// FMA32 takes 2.2 ns on an EPYC (Zen 5); a product and a sum that round separately take 0.5 ns.
func FMA32(x, y, z float32) float32 {
	p, w := float64(float64(x)*float64(y)), float64(z)
	s := p + w
	const (
		low    = 1<<(52-23) - 1 // the fraction bits that a float32 lacks
		tie    = 1 << (52 - 23 - 1)
		normal = 1023 - 126 // the exponent of the smallest normal float32: below, more bits go
	)
	b := math.Float64bits(s)
	if b&low != tie && b>>52&0x7ff >= normal {
		return float32(s)
	}
	return fmaSlow(p, w, s)
}

// fmaSlow rounds a finite s = p + z to float32 as if s were exact.
func fmaSlow(p, z, s float64) float32 {
	// The error of s, exactly: D. Knuth's TwoSum.
	q := s - z
	e := float64(p-q) + float64(z-float64(s-q))
	b := math.Float64bits(s)
	if b&1 == 0 && e != 0 {
		if (e > 0) == (s > 0) { // the exact sum lies beyond s, as seen from 0
			b++
		} else {
			b--
		}
	}
	return float32(math.Float64frombits(b))
}

// NaN is the NaN that all results have: CPUs differ in the sign and the payload.
var NaN = math.Float32frombits(0x7fc00000)

// FiniteOrNaN returns v, or NaN for infinities: CPUs differ in the sign of 0 times infinity.
func FiniteOrNaN(v float32) float32 {
	if Finite(v) {
		return v
	}
	return NaN
}
