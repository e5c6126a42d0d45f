package gguf

import (
	"encoding/binary"

	"github.com/lowbit-go/gq/internal/floats"
)

// This file has the blocks with one scale (ggml/src/ggml-common.h, block_q1_0 ...). The scale, and
// in Q4_1 and Q5_1 the minimum behind it, precede the codes.

var le = binary.LittleEndian

// half reads an F16 value.
func half(src []byte) float32 { return floats.F16ToF32(le.Uint16(src)) }

// putHalf writes an F16 value.
func putHalf(dst []byte, v float32) { le.PutUint16(dst, floats.F16FromF32(v)) }

// Q1_0: a bit per weight, +d or -d; the first weight is in the lowest bit.

func unpackQ1_0(b *block, src []byte) {
	b.d = half(src)
	for i, bits := range src[2:18] {
		codes := b.codes[8*i:][:8]
		for j := range codes {
			codes[j] = int8(bits>>j&1)*2 - 1
		}
	}
}

func packQ1_0(dst []byte, b *block) {
	putHalf(dst, b.d)
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
	b.d = half(src)
	for i, bits := range src[2:18] {
		codes := b.codes[4*i:][:4]
		for j := range codes {
			codes[j] = int8(bits>>(2*j)&3) - 1
		}
	}
}

func packQ2_0(dst []byte, b *block) {
	putHalf(dst, b.d)
	for i := range 16 {
		q := b.codes[4*i:][:4]
		dst[2+i] = byte(q[0]+1) | byte(q[1]+1)<<2 | byte(q[2]+1)<<4 | byte(q[3]+1)<<6
	}
}

// nibbles splits bytes: codes[i] is the low half of src[i] plus add, codes[len(src)+i] the high
// half.
func nibbles(codes []int8, src []byte, add int8) {
	low, high := codes[:len(src)], codes[len(src):2*len(src)]
	for i, v := range src {
		low[i], high[i] = int8(v&15)+add, int8(v>>4)+add
	}
}

// putNibbles is the inverse of nibbles; it takes the lowest 4 bits of codes[i] - add.
func putNibbles(dst []byte, codes []int8, add int8) {
	low, high := asBytes(codes[:len(dst)]), asBytes(codes[len(dst):2*len(dst)])
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

// putHighBits is the inverse of highBits: it collects bit 4 of codes[i] - add.
func putHighBits(dst []byte, codes *[256]int8, add int8) {
	var bits uint32
	for i, q := range codes[:32] {
		bits |= uint32(byte(q-add)>>4&1) << i
	}
	le.PutUint32(dst, bits)
}

func unpackQ4_0(b *block, src []byte) {
	b.d = half(src)
	nibbles(b.codes[:], src[2:18], -8)
}

func packQ4_0(dst []byte, b *block) {
	putHalf(dst, b.d)
	putNibbles(dst[2:18], b.codes[:], -8)
}

func unpackQ4_1(b *block, src []byte) {
	b.d, b.m = half(src), half(src[2:])
	nibbles(b.codes[:], src[4:20], 0)
}

func packQ4_1(dst []byte, b *block) {
	putHalf(dst, b.d)
	putHalf(dst[2:], b.m)
	putNibbles(dst[4:20], b.codes[:], 0)
}

func unpackQ5_0(b *block, src []byte) {
	b.d = half(src)
	nibbles(b.codes[:], src[6:22], -16)
	highBits(&b.codes, src[2:6])
}

func packQ5_0(dst []byte, b *block) {
	putHalf(dst, b.d)
	putHighBits(dst[2:6], &b.codes, -16)
	putNibbles(dst[6:22], b.codes[:], -16)
}

func unpackQ5_1(b *block, src []byte) {
	b.d, b.m = half(src), half(src[2:])
	nibbles(b.codes[:], src[8:24], 0)
	highBits(&b.codes, src[4:8])
}

func packQ5_1(dst []byte, b *block) {
	putHalf(dst, b.d)
	putHalf(dst[2:], b.m)
	putHighBits(dst[4:8], &b.codes, 0)
	putNibbles(dst[8:24], b.codes[:], 0)
}

func unpackQ8_0(b *block, src []byte) {
	b.d = half(src)
	for i, v := range src[2:34] {
		b.codes[i] = int8(v)
	}
}

func packQ8_0(dst []byte, b *block) {
	putHalf(dst, b.d)
	copy(dst[2:34], asBytes(b.codes[:32]))
}
