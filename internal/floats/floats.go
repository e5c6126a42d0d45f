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

	// f16Rebias is the difference of the exponent fields of a float32 and an F16 of the same value:
	// 127 - 15, in place.
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
		// A subnormal is mag units of 2^-24: the product is exact, and it is a normal
		// float32, so flush-to-zero modes do not matter.
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
		// In 0.5 .. 1 a float32's last place is 2^-24, the unit of F16's subnormals: the
		// addition does the rounding and the low bits of the sum are the result (0x400
		// for what rounds up to 2^-14, which is that value's encoding).
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

// F8E5M2ToF32 widens a value of the 8-bit format with 5 exponent bits: the upper
// half of an F16.
func F8E5M2ToF32(b byte) float32 { return f8e5m2[b] }

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

// Abs returns the magnitude of v.
func Abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }
