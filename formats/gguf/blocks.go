package gguf

import (
	"encoding/binary"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
)

// This file has the K types: super-blocks of 256 weights with integer sub-scales (block_q2_K ... in
// ggml/src/ggml-common.h). Each half of Q2_K, Q3_K and Q6_K interleaves its weights: weights that
// are 32 apart share bytes. Q4_K and Q5_K do the same in each quarter.

// Q2_K: 16 bytes with a sub-scale and a sub-minimum, 64 bytes of codes, d, dmin.

func unpackQ2_K(b *block, src []byte) {
	for i, v := range src[:16] {
		b.subs[i], b.subMins[i] = int8(v&15), v>>4
	}
	unpackTwoBits(&b.codes, src[16:80])
}

func packQ2_K(dst []byte, b *block) {
	for i := range 16 {
		dst[i] = byte(b.subs[i]) | b.subMins[i]<<4
	}
	packTwoBits(dst[16:80], &b.codes)
}

// unpackTwoBits spreads 64 bytes: byte l of a half has its weights l, l+32, l+64 and l+96.
func unpackTwoBits(codes *[256]int8, src []byte) {
	for n := range 2 {
		for l, v := range src[32*n:][:32] {
			out := codes[128*n+l:]
			out[0], out[32], out[64], out[96] = int8(v&3), int8(v>>2&3), int8(v>>4&3), int8(v>>6)
		}
	}
}

func packTwoBits(dst []byte, codes *[256]int8) {
	for n := range 2 {
		for l := range 32 {
			q := codes[128*n+l:]
			dst[32*n+l] = byte(q[0]&3) | byte(q[32]&3)<<2 | byte(q[64]&3)<<4 | byte(q[96]&3)<<6
		}
	}
}

// Q3_K: 32 bytes of high bits, 64 bytes of low bits, 12 bytes of sub-scales + 32, d. Bit i of byte
// l of the high bits is bit 2 of code 32 i + l. Sub-scales i and i+8 share a byte for their low 4
// bits, sub-scales i, i+4, i+8 and i+12 a byte for their high 2 bits: 8 bytes, then 4.

func unpackQ3_K(b *block, src []byte) {
	unpackTwoBits(&b.codes, src[32:96])
	for l, v := range src[:32] {
		for i := range 8 {
			b.codes[32*i+l] += int8(v>>i&1)<<2 - 4
		}
	}
	low, high := src[96:104], src[104:108]
	for i := range b.subs {
		b.subs[i] = int8(low[i%8]>>(i/8*4)&15|high[i%4]>>(i/4*2)&3<<4) - 32
	}
}

func packQ3_K(dst []byte, b *block) {
	packTwoBits(dst[32:96], &b.codes) // -4 .. 3 and code + 4 have the same two low bits
	clear(dst[96:108])
	for l := range 32 {
		var bits byte
		for i := range 8 {
			bits |= byte(b.codes[32*i+l]+4) >> 2 << i
		}
		dst[l] = bits
	}
	for i, s := range b.subs {
		v := byte(s + 32)
		dst[96+i%8] |= v & 15 << (i / 8 * 4)
		dst[104+i%4] |= v >> 4 << (i / 4 * 2)
	}
}

// sixBits reads the 8 sub-scales and 8 sub-minima of Q4_K and Q5_K: the first 4 of each are 6 bits
// of a byte; the rest have their low 4 bits in the last 4 bytes, their high 2 in the top of the
// others.
func sixBits(b *block, src []byte) {
	for i := range 4 {
		s, m, low := src[i], src[4+i], src[8+i]
		b.subs[i], b.subMins[i] = int8(s&63), m&63
		b.subs[4+i], b.subMins[4+i] = int8(low&15|s>>6<<4), low>>4|m>>6<<4
	}
}

func putSixBits(dst []byte, b *block) {
	for i := range 4 {
		s, m := byte(b.subs[4+i]), b.subMins[4+i]
		dst[i], dst[4+i] = byte(b.subs[i])|s>>4<<6, b.subMins[i]|m>>4<<6
		dst[8+i] = s&15 | m<<4
	}
}

// Q4_K: d, dmin, 12 bytes of sub-scales and sub-minima, 128 bytes of codes.

func unpackQ4_K(b *block, src []byte) {
	sixBits(b, src[4:16])
	for n := range 4 {
		nibbles(b.codes[64*n:], src[16+32*n:][:32], 0)
	}
}

func packQ4_K(dst []byte, b *block) {
	putSixBits(dst[4:16], b)
	for n := range 4 {
		putNibbles(dst[16+32*n:][:32], b.codes[64*n:], 0)
	}
}

// Q5_K: d, dmin, 12 bytes of sub-scales and sub-minima, 32 bytes of high bits, 128 bytes of low
// bits. Bit i of byte l of the high bits is bit 4 of code 32 i + l.

func unpackQ5_K(b *block, src []byte) {
	sixBits(b, src[4:16])
	for n := range 4 {
		nibbles(b.codes[64*n:], src[48+32*n:][:32], 0)
	}
	for l, v := range src[16:48] {
		for i := range 8 {
			b.codes[32*i+l] |= int8(v >> i & 1 << 4)
		}
	}
}

func packQ5_K(dst []byte, b *block) {
	putSixBits(dst[4:16], b)
	for l := range 32 {
		var bits byte
		for i := range 8 {
			bits |= byte(b.codes[32*i+l]) >> 4 << i
		}
		dst[16+l] = bits
	}
	for n := range 4 {
		putNibbles(dst[48+32*n:][:32], b.codes[64*n:], 0)
	}
}

// Q6_K: 128 bytes of low bits, 64 bytes of high bits, 16 sub-scales, d. Codes are stored + 32. In
// each half, byte l of the low bits has weights l and l + 64, byte l of the high bits weights l, l
// + 32, l + 64 and l + 96.

func unpackQ6_K(b *block, src []byte) {
	for n := range 2 {
		low, high, codes := src[64*n:][:64], src[128+32*n:][:32], b.codes[128*n:][:128]
		for l, h := range high {
			codes[l] = int8(low[l]&15|h&3<<4) - 32
			codes[l+32] = int8(low[l+32]&15|h>>2&3<<4) - 32
			codes[l+64] = int8(low[l]>>4|h>>4&3<<4) - 32
			codes[l+96] = int8(low[l+32]>>4|h>>6<<4) - 32
		}
	}
	copy(buffer.Bytes(b.subs[:]), src[192:])
}

func packQ6_K(dst []byte, b *block) {
	for n := range 2 {
		low, high, codes := dst[64*n:][:64], dst[128+32*n:][:32], b.codes[128*n:][:128]
		for l := range high {
			q0, q1, q2, q3 := byte(codes[l]+32), byte(codes[l+32]+32), byte(codes[l+64]+32), byte(codes[l+96]+32)
			low[l], low[l+32] = q0&15|q2<<4, q1&15|q3<<4
			high[l] = q0>>4 | q1>>4<<2 | q2>>4<<4 | q3>>4<<6
		}
	}
	copy(dst[192:], buffer.Bytes(b.subs[:]))
}

// This file has the blocks with a single scale (ggml/src/ggml-common.h, block_q1_0 ...). The scale,
// and in Q4_1 and Q5_1 the minimum behind the scale, precede the codes.

var le = binary.LittleEndian

func half(src []byte) float32 { return floats.F16ToF32(le.Uint16(src)) }

func putHalf(dst []byte, v float32) { le.PutUint16(dst, floats.F16FromF32(v)) }

// Q1_0: a bit per weight, +d or -d; the first weight is in the lowest bit.

func unpackQ1_0(b *block, src []byte) {
	for i, bits := range src[2:18] {
		codes := b.codes[8*i:][:8]
		for j := range codes {
			codes[j] = int8(bits>>j&1)*2 - 1
		}
	}
}

func packQ1_0(dst []byte, b *block) {
	for i := range 16 {
		var bits byte
		for j, q := range b.codes[8*i:][:8] {
			bits |= byte(q+1) >> 1 << j
		}
		dst[2+i] = bits
	}
}

// Q2_0: 2 bits per weight, code + 1; the first weight is in the lowest bits.

func unpackQ2_0(b *block, src []byte) {
	for i, bits := range src[2:18] {
		codes := b.codes[4*i:][:4]
		for j := range codes {
			codes[j] = int8(bits>>(2*j)&3) - 1
		}
	}
}

func packQ2_0(dst []byte, b *block) {
	for i := range 16 {
		q := b.codes[4*i:][:4]
		dst[2+i] = byte(q[0]+1) | byte(q[1]+1)<<2 | byte(q[2]+1)<<4 | byte(q[3]+1)<<6
	}
}

// nibbles splits a multiple of 8 bytes, plus add: codes[i] is the low half of src[i],
// codes[len(src)+i] the high.
func nibbles(codes []int8, src []byte, add int8) {
	low, high := buffer.Bytes(codes[:len(src)]), buffer.Bytes(codes[len(src):2*len(src)])
	const mask = 0x0f * eachByte
	more := uint64(byte(add)) * eachByte
	for i := 0; i < len(src); i += 8 {
		x := le.Uint64(src[i:])
		le.PutUint64(low[i:], addBytes(x&mask, more))
		le.PutUint64(high[i:], addBytes(x>>4&mask, more))
	}
}

// addBytes adds the bytes of x and y, each modulo 256.
func addBytes(x, y uint64) uint64 {
	const sign = 0x80 * eachByte
	return (x&^sign + y&^sign) ^ (x^y)&sign
}

// putNibbles is the inverse of nibbles for the lowest 4 bits of codes[i] - add.
func putNibbles(dst []byte, codes []int8, add int8) {
	low, high := buffer.Bytes(codes[:len(dst)]), buffer.Bytes(codes[len(dst):2*len(dst)])
	const mask = 0x0f * eachByte
	less := uint64(-add&15) * eachByte
	for i := 0; i < len(dst); i += 8 { // sums of two nibbles stay in their bytes
		l := (le.Uint64(low[i:])&mask + less) & mask
		h := (le.Uint64(high[i:])&mask + less) & mask
		le.PutUint64(dst[i:], l|h<<4)
	}
}

// highBits adds 16 to codes[i] where bit i of src is set.
func highBits(codes *[256]int8, src []byte) {
	bits := le.Uint32(src)
	for i := range 32 {
		codes[i] += int8(bits >> i & 1 << 4)
	}
}

// putHighBits is the inverse of highBits: bit 4 of codes[i] - add.
func putHighBits(dst []byte, codes *[256]int8, add int8) {
	var bits uint32
	for i, q := range codes[:32] {
		bits |= uint32(byte(q-add)>>4&1) << i
	}
	le.PutUint32(dst, bits)
}

// fourBits reads 32 codes of 4 bits, plus add, from byte at on. putFourBits is its inverse.
func fourBits(at int, add int8) func(b *block, src []byte) {
	return func(b *block, src []byte) { nibbles(b.codes[:], src[at:at+16], add) }
}

func putFourBits(at int, add int8) func(dst []byte, b *block) {
	return func(dst []byte, b *block) { putNibbles(dst[at:at+16], b.codes[:], add) }
}

// fiveBits reads 32 codes of 5 bits, plus add: from byte at on their high bits, then their low
// bits. putFiveBits is its inverse.
func fiveBits(at int, add int8) func(b *block, src []byte) {
	return func(b *block, src []byte) {
		nibbles(b.codes[:], src[at+4:at+20], add)
		highBits(&b.codes, src[at:at+4])
	}
}

func putFiveBits(at int, add int8) func(dst []byte, b *block) {
	return func(dst []byte, b *block) {
		putHighBits(dst[at:at+4], &b.codes, add)
		putNibbles(dst[at+4:at+20], b.codes[:], add)
	}
}

// eightBits reads n codes of 8 bits from byte at on.
func eightBits(at, n int) func(b *block, src []byte) {
	return func(b *block, src []byte) { copy(buffer.Bytes(b.codes[:n]), src[at:]) }
}

func packQ8_0(dst []byte, b *block) { copy(dst[2:], buffer.Bytes(b.codes[:32])) }
