package gguf

import (
	"math"

	"github.com/lowbit-go/gq/internal/floats"
)

// This file has the types that gq reads and does not write.

func unpackQ8_K(b *block, src []byte) { // a float32 scale, codes, sums of codes
	eightBits(4, 256)(b, src)
	b.d = math.Float32frombits(le.Uint32(src))
}

// nonLinear has the values of the 4-bit codes of IQ4_NL and IQ4_XS (kvalues_iq4nl of ggml), fp4 has
// twice the values of MXFP4 and NVFP4 (E2M1 of the OCP Microscaling Formats specification).
var (
	nonLinear = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	fp4       = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

func lookUp(codes []int8, src []byte, values *[16]int8) {
	low, high := codes[:len(src)], codes[len(src):2*len(src)]
	for i, v := range src {
		low[i], high[i] = values[v&15], values[v>>4]
	}
}

func unpackIQ4_NL(b *block, src []byte) {
	lookUp(b.codes[:], src[2:18], &nonLinear)
}

// IQ4_XS: d, high (16 bits) and low (4 bytes) bits of 8 sub-scales + 32, 128 bytes of codes.
func unpackIQ4_XS(b *block, src []byte) {
	high := le.Uint16(src[2:])
	for i := range 8 {
		b.subs[i] = int8(src[4+i/2]>>(i%2*4)&15|byte(high>>(2*i)&3)<<4) - 32
		lookUp(b.codes[32*i:], src[8+16*i:][:16], &nonLinear)
	}
}

// TQ1_0: bytes of 5 base-3 digits, the last 4 bytes with 4 digits, then d. A byte is the digits as
// a fraction of 3^5, times 256 and rounded up; its first digit is the integer part of 3 times the
// fraction.
func unpackTQ1_0(b *block, src []byte) {
	at := 0
	for _, part := range []struct{ from, n, digits int }{{0, 32, 5}, {32, 16, 5}, {48, 4, 4}} {
		power := byte(1)
		for range part.digits {
			for _, v := range src[part.from:][:part.n] {
				b.codes[at] = int8(uint16(v*power)*3>>8) - 1
				at++
			}
			power *= 3
		}
	}
}

func unpackTQ2_0(b *block, src []byte) { // 64 bytes of 2-bit codes, as in Q2_K, then d
	unpackTwoBits(&b.codes, src[:64])
	for i := range b.codes {
		b.codes[i]--
	}
}

// unpackMXFP4 halves the E8M0 scale, because fp4 is doubled. The two smallest are subnormal.
func unpackMXFP4(b *block, src []byte) {
	bits := uint32(0x00200000) << src[0]
	if src[0] >= 2 {
		bits = uint32(src[0]-1) << 23
	}
	b.d = math.Float32frombits(bits)
	lookUp(b.codes[:], src[1:17], &fp4)
}

// decodeNVFP4 decodes a block: a scale for each of 4 groups of 16, then their codes.
func decodeNVFP4(dst []float32, src []byte) {
	var codes [16]int8
	for g := range 4 {
		scale := nvScale(src[g])
		lookUp(codes[:], src[4+8*g:][:8], &fp4)
		for i, q := range codes {
			dst[16*g+i] = float32(scale * float32(q))
		}
	}
}

// nvScale gives half of an E4M3 scale, because the values in fp4 are doubled. ggml ignores the
// sign, takes the NaN 0x7f for 0, and 0xff for the number that would follow the largest, 448.
func nvScale(v byte) float32 {
	switch v {
	case 0x7f:
		return 0
	case 0xff:
		return 480 / 2
	}
	return floats.F8E4M3ToF32(v&0x7f) / 2
}
