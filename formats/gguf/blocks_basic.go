package gguf

import (
	"encoding/binary"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
)

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

// nibbles splits bytes, plus add: codes[i] is the low half of src[i], codes[len(src)+i] the high.
func nibbles(codes []int8, src []byte, add int8) {
	low, high := codes[:len(src)], codes[len(src):2*len(src)]
	for i, v := range src {
		low[i], high[i] = int8(v&15)+add, int8(v>>4)+add
	}
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
