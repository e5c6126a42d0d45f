package gguf

import "math"

// This file has the types whose codes are no range of integers. Fields.Codes of these types are the
// values of a table, so that a weight is a code times the scale as elsewhere.

// nonLinear has the values of the 4-bit codes of IQ4_NL and IQ4_XS (kvalues_iq4nl of ggml), fp4 has
// twice the values of MXFP4 and NVFP4 (E2M1 of the OCP Microscaling Formats specification).
var (
	nonLinear = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	fp4       = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

var (
	nonLinearIndex = indexOf(nonLinear[:])
	fp4Index       = indexOf(fp4[:])
	ternaryIndex   = indexOf([]int8{-1, 0, 1})
)

// indexOf is codec.known of a table. Of equal values the first counts.
func indexOf(values []int8) (known [256]uint8) {
	for i, v := range values {
		if known[byte(v)] == 0 {
			known[byte(v)] = uint8(1 + i)
		}
	}
	return known
}

func lookUp(codes []int8, src []byte, values *[16]int8) {
	low, high := codes[:len(src)], codes[len(src):2*len(src)]
	for i, v := range src {
		low[i], high[i] = values[v&15], values[v>>4]
	}
}

// putLookedUp is the inverse of lookUp, for codes in the table.
func putLookedUp(dst []byte, codes []int8, known *[256]uint8) {
	low, high := codes[:len(dst)], codes[len(dst):2*len(dst)]
	for i := range dst {
		dst[i] = known[byte(low[i])] - 1 | (known[byte(high[i])]-1)<<4
	}
}

func unpackIQ4_NL(b *block, src []byte) {
	lookUp(b.codes[:], src[2:18], &nonLinear)
}

func packIQ4_NL(dst []byte, b *block) {
	putLookedUp(dst[2:18], b.codes[:], &nonLinearIndex)
}

// IQ4_XS: d, high (16 bits) and low (4 bytes) bits of 8 sub-scales + 32, 128 bytes of codes.
func unpackIQ4_XS(b *block, src []byte) {
	high := le.Uint16(src[2:])
	for i := range 8 {
		b.subs[i] = int8(src[4+i/2]>>(i%2*4)&15|byte(high>>(2*i)&3)<<4) - 32
		lookUp(b.codes[32*i:], src[8+16*i:][:16], &nonLinear)
	}
}

func packIQ4_XS(dst []byte, b *block) {
	var high uint16
	clear(dst[4:8])
	for i, s := range b.subs[:8] {
		v := byte(s + 32)
		high |= uint16(v>>4) << (2 * i)
		dst[4+i/2] |= v & 15 << (i % 2 * 4)
		putLookedUp(dst[8+16*i:][:16], b.codes[32*i:], &nonLinearIndex)
	}
	le.PutUint16(dst[2:], high)
}

// TQ1_0: bytes of 5 base-3 digits, the last 4 bytes with 4 digits, then d. A byte is the digits as
// a fraction of 3^5, times 256 and rounded up; its first digit is the integer part of 3 times the
// fraction.
func unpackTQ1_0(b *block, src []byte) {
	at := 0
	for _, part := range digitsTQ1_0 {
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

// digitsTQ1_0 are the runs of bytes with as many digits. The digits of a place follow each other.
var digitsTQ1_0 = [...]struct{ from, n, digits int }{{0, 32, 5}, {32, 16, 5}, {48, 4, 4}}

func packTQ1_0(dst []byte, b *block) {
	at := 0
	for _, part := range digitsTQ1_0 {
		for i := range part.n {
			number := 0
			for d := range 5 { // the digits that a byte lacks are 0
				if number *= 3; d < part.digits {
					number += int(b.codes[at+d*part.n+i] + 1)
				}
			}
			dst[part.from+i] = byte((number*256 + 242) / 243)
		}
		at += part.n * part.digits
	}
}

func unpackTQ2_0(b *block, src []byte) { // 64 bytes of 2-bit codes, as in Q2_K, then d
	unpackTwoBits(&b.codes, src[:64])
	for i := range b.codes {
		b.codes[i]--
	}
}

func packTQ2_0(dst []byte, b *block) {
	var codes [256]int8
	for i, q := range b.codes {
		codes[i] = q + 1
	}
	packTwoBits(dst[:64], &codes)
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

func packMXFP4(dst []byte, b *block) {
	bits := math.Float32bits(b.d)
	dst[0] = byte(bits>>23) + 1
	if bits < 1<<23 {
		dst[0] = byte(bits >> 22)
	}
	putLookedUp(dst[1:17], b.codes[:], &fp4Index)
}

// isHalvedE8M0 reports whether v is half of a scale of MXFP4. ggml reads byte 255, E8M0's NaN, as
// 2^128.
func isHalvedE8M0(v float32) bool {
	bits := math.Float32bits(v)
	return bits == 1<<21 || bits == 1<<22 || bits&(1<<23-1) == 0 && bits >= 1<<23 && bits <= 254<<23
}
