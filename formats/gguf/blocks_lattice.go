package gguf

import (
	"math/bits"

	"github.com/lowbit-go/gq/internal/floats"
)

// This file has the IQ1, IQ2 and IQ3 types: super-blocks of 256 weights, in groups of 32. A point
// of a lattice stands for the magnitudes of 8 weights, or of 4 in IQ3, and a bit per weight for its
// sign. Sub-scales are odd integers 2 s + 1; ggml's factors 1/8 and 1/4 are exact in the scale.

// The values of a lattice's coordinates.
var (
	valuesIQ1     = [8]int8{-8, 0, 8}
	valuesIQ2     = [8]int8{8, 25, 43}
	valuesIQ3_XXS = [8]int8{4, 12, 20, 28, 36, 44, 52, 62}
	valuesIQ3_S   = [8]int8{1, 3, 5, 7, 9, 11, 13, 15}
)

// Lattice returns the points of the lattice of an IQ1, IQ2 or IQ3 type: the codes of 8 weights, or
// of 4 in IQ3, without signs. For IQ1 they are 8 times the coordinates, without shifts. Other types
// have no points.
func (t TensorType) Lattice() [][]int8 {
	switch t {
	case iq2_XXS:
		return points(latticeIQ2_XXS[:], 2, &valuesIQ2)
	case iq2_XS:
		return points(latticeIQ2_XS[:], 2, &valuesIQ2)
	case iq2_S:
		return points(latticeIQ2_S[:], 2, &valuesIQ2)
	case iq3_XXS:
		return points(latticeIQ3_XXS[:], 3, &valuesIQ3_XXS)
	case iq3_S:
		return points(latticeIQ3_S[:], 3, &valuesIQ3_S)
	case iq1_S, iq1_M:
		return points(latticeIQ1[:], 2, &valuesIQ1)
	}
	return nil
}

func points(lattice []uint16, width int, values *[8]int8) [][]int8 {
	n := 16 / width &^ 3 // coordinates
	list, codes := make([][]int8, len(lattice)), make([]int8, n*len(lattice))
	for i, p := range lattice {
		list[i] = codes[n*i:][:n]
		signed(list[i], p, width, values, 0)
	}
	return list
}

// signed sets codes to a point's coordinates of width bits, negated where signs has a bit.
func signed(codes []int8, point uint16, width int, values *[8]int8, signs byte) {
	mask := uint16(1)<<width - 1
	for i := range codes {
		minus := -int8(signs & 1)
		codes[i] = (values[point&mask&7] ^ minus) - minus
		point, signs = point>>width, signs>>1
	}
}

// evenSigns returns 8 signs of 7 bits: the number of negative signs is even.
func evenSigns(v uint32) byte {
	v &= 127
	return byte(v | uint32(bits.OnesCount32(v)&1)<<7)
}

// odd is the sub-scale of 4 bits.
func odd(s byte) int8 { return int8(2*(s&15) + 1) }

// IQ2_XXS: d; for each group 4 indices, then 4 times 7 signs and 4 bits of sub-scale.
func unpackIQ2_XXS(b *block, src []byte) {
	b.d /= 8
	for g := range 8 {
		group := src[2+8*g:][:8]
		word := le.Uint32(group[4:])
		b.subs[g] = odd(byte(word >> 28))
		for l, i := range group[:4] {
			signed(b.codes[32*g+8*l:][:8], latticeIQ2_XXS[i], 2, &valuesIQ2, evenSigns(word>>(7*l)))
		}
	}
}

// IQ2_XS: d, 32 words of 9 bits of index and 7 signs, 16 sub-scales of 4 bits.
func unpackIQ2_XS(b *block, src []byte) {
	b.d /= 8
	for g, v := range src[66:74] {
		b.subs[2*g], b.subs[2*g+1] = odd(v), odd(v>>4)
	}
	for l := range 32 {
		word := le.Uint16(src[2+2*l:])
		signed(b.codes[8*l:][:8], latticeIQ2_XS[word&511], 2, &valuesIQ2, evenSigns(uint32(word>>9)))
	}
}

// IQ2_S: d, 32 bytes of indices, 32 bytes of signs, 8 bytes with 2 high bits of 4 indices, 16
// sub-scales of 4 bits.
func unpackIQ2_S(b *block, src []byte) {
	b.d /= 8
	low, signs, high := src[2:34], src[34:66], src[66:74]
	for g, v := range src[74:82] {
		b.subs[2*g], b.subs[2*g+1] = odd(v), odd(v>>4)
	}
	for l := range 32 {
		i := int(low[l]) | int(high[l/4]>>(l%4*2)&3)<<8
		signed(b.codes[8*l:][:8], latticeIQ2_S[i], 2, &valuesIQ2, signs[l])
	}
}

// IQ3_XXS: d, 64 indices, then for each group 4 times 7 signs and 4 bits of sub-scale.
func unpackIQ3_XXS(b *block, src []byte) {
	b.d /= 4
	for g := range 8 {
		word := le.Uint32(src[66+4*g:])
		b.subs[g] = odd(byte(word >> 28))
		for l := range 4 {
			signs, i := evenSigns(word>>(7*l)), src[2+8*g+2*l:][:2]
			signed(b.codes[32*g+8*l:][:4], latticeIQ3_XXS[i[0]], 3, &valuesIQ3_XXS, signs)
			signed(b.codes[32*g+8*l+4:][:4], latticeIQ3_XXS[i[1]], 3, &valuesIQ3_XXS, signs>>4)
		}
	}
}

// IQ3_S: d, 64 bytes of indices, 8 bytes with their high bits, 32 bytes of signs, 8 sub-scales of 4
// bits.
func unpackIQ3_S(b *block, src []byte) {
	low, high, signs := src[2:66], src[66:74], src[74:106]
	for g, v := range src[106:110] {
		b.subs[2*g], b.subs[2*g+1] = odd(v), odd(v>>4)
	}
	for l := range 64 {
		i := int(low[l]) | int(high[l/8]>>(l%8)&1)<<8
		signed(b.codes[4*l:][:4], latticeIQ3_S[i], 3, &valuesIQ3_S, signs[l/2]>>(l%2*4))
	}
}

// shifted sets codes to 8 times a point's coordinates -1, 0, 1, plus or minus 1 (ggml: 1/8).
func shifted(codes []int8, point uint16, negative bool) {
	shift := int8(-8 + 1)
	if negative {
		shift = -8 - 1
	}
	for i := range codes[:8] {
		codes[i] = int8(point>>(2*i)&3)*8 + shift
	}
}

// IQ1_S: d, 32 bytes of indices, then for each group a word: 3 high bits of 4 indices, 3 bits of
// sub-scale, and the sign of the shift.
func unpackIQ1_S(b *block, src []byte) {
	b.d /= 8
	for g := range 8 {
		word := le.Uint16(src[34+2*g:])
		b.subs[g] = odd(byte(word >> 12 & 7))
		for l, low := range src[2+4*g:][:4] {
			shifted(b.codes[32*g+8*l:], latticeIQ1[int(low)|int(word>>(3*l)&7)<<8], word>>15 != 0)
		}
	}
}

// IQ1_M: 32 bytes of indices, 16 bytes with 3 high bits of 2 indices and the signs of their shifts,
// 4 words with 4 sub-scales of 3 bits each, and d in the words' 4 high bits.
func unpackIQ1_M(b *block, src []byte) {
	var d uint16
	for w := range 4 {
		word := le.Uint16(src[48+2*w:])
		d |= word >> 12 << (4 * w)
		for s := range 4 {
			b.subs[4*w+s] = odd(byte(word >> (3 * s) & 7))
		}
	}
	b.d = floats.F16ToF32(d) / 8
	for l, low := range src[:32] {
		high := src[32+l/2] >> (l % 2 * 4)
		shifted(b.codes[8*l:], latticeIQ1[int(low)|int(high&7)<<8], high&8 != 0)
	}
}
