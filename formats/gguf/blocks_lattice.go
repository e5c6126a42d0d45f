package gguf

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/lowbit-go/gq/internal/floats"
)

// This file has the IQ1, IQ2 and IQ3 types: super-blocks of 256 weights, in groups of 32. A point
// of a lattice stands for the magnitudes of 8 weights, or of 4 in IQ3, and a bit per weight for its
// sign. Sub-scales are odd integers 2 s + 1.

// The values of a lattice's coordinates.
var (
	valuesIQ1     = [8]int8{-8, 0, 8}
	valuesIQ2     = [8]int8{8, 25, 43}
	valuesIQ3_XXS = [8]int8{4, 12, 20, 28, 36, 44, 52, 62}
	valuesIQ3_S   = [8]int8{1, 3, 5, 7, 9, 11, 13, 15}
)

// lattice has what a type's indices and signs stand for.
type lattice struct {
	points []uint16 // ascending
	width  int      // bits of a coordinate
	values *[8]int8
	// even says that 7 bits give the signs of 8 weights: the number of negative signs is even.
	even bool
}

var (
	pointsIQ2_XXS = lattice{latticeIQ2_XXS[:], 2, &valuesIQ2, true}
	pointsIQ2_XS  = lattice{latticeIQ2_XS[:], 2, &valuesIQ2, true}
	pointsIQ2_S   = lattice{latticeIQ2_S[:], 2, &valuesIQ2, false}
	pointsIQ3_XXS = lattice{latticeIQ3_XXS[:], 3, &valuesIQ3_XXS, true}
	pointsIQ3_S   = lattice{latticeIQ3_S[:], 3, &valuesIQ3_S, false}
)

// weights is the number of weights of a point.
func (l *lattice) weights() int { return 16 / l.width &^ 3 }

// find returns the point of the magnitudes of codes, and the signs.
func (l *lattice) find(codes []int8) (index int, signs byte, ok bool) {
	var point uint16
	for i, q := range codes {
		minus := q >> 7
		signs |= byte(minus) & 1 << i
		v := slices.Index(l.values[:], (q^minus)-minus)
		if v < 0 || q == 0 {
			return 0, 0, false
		}
		point |= uint16(v) << (i * l.width)
	}
	index, ok = slices.BinarySearch(l.points, point)
	return index, signs, ok
}

// check fails unless codes are points of the lattice.
func (l *lattice) check(codes []int8) error {
	n, negative := l.weights(), 0
	for i := 0; i < len(codes); i += n {
		_, signs, ok := l.find(codes[i:][:n])
		if negative += bits.OnesCount8(signs); !ok {
			return fmt.Errorf("it has the codes %d, which are no point of the type's lattice", codes[i:][:n])
		}
		if l.even && (i+n)%8 == 0 {
			if negative%2 > 0 {
				return fmt.Errorf("it has an odd number of negative codes in %d: the type stores 7 of 8 signs", codes[i+n-8:][:8])
			}
			negative = 0
		}
	}
	return nil
}

// Lattice returns the points of the lattice of an IQ1, IQ2 or IQ3 type: the codes of 8 weights, or
// of 4 in IQ3, without signs. For IQ1 they are 8 times the coordinates, without shifts. Other types
// have no points.
func (t TensorType) Lattice() [][]int8 {
	switch c := t.codec(); {
	case t == iq1_S || t == iq1_M:
		return points(latticeIQ1[:], 2, &valuesIQ1)
	case c != nil && c.lattice != nil:
		return points(c.lattice.points, c.lattice.width, c.lattice.values)
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

// putGroup writes the indices of a group of 32 weights, and the word of its signs and sub-scale.
func (l *lattice) putGroup(indices, word []byte, codes []int8, sub int8) {
	n, v := l.weights(), uint32(sub>>1)<<28
	for i := range 32 / n {
		point, signs, _ := l.find(codes[i*n:][:n])
		indices[i] = byte(point)
		v |= uint32(signs<<(i*n%8)&127) << (i * n / 8 * 7)
	}
	le.PutUint32(word, v)
}

// putPoints writes indices, their high bits, and signs of 256 weights.
func (l *lattice) putPoints(low, high, signs []byte, codes []int8) {
	clear(high)
	clear(signs)
	n := l.weights()
	for i := range low {
		point, minus, _ := l.find(codes[i*n:][:n])
		low[i] = byte(point)
		at := i * 8 * len(high) / len(low)
		high[at/8] |= byte(point>>8) << (at % 8)
		signs[i*n/8] |= minus << (i * n % 8)
	}
}

// IQ2_XXS: d; for each group 4 indices, then 4 times 7 signs and 4 bits of sub-scale.
func unpackIQ2_XXS(b *block, src []byte) {
	for g := range 8 {
		group := src[2+8*g:][:8]
		word := le.Uint32(group[4:])
		b.subs[g] = odd(byte(word >> 28))
		for l, i := range group[:4] {
			signed(b.codes[32*g+8*l:][:8], latticeIQ2_XXS[i], 2, &valuesIQ2, evenSigns(word>>(7*l)))
		}
	}
}

func packIQ2_XXS(dst []byte, b *block) {
	for g := range 8 {
		pointsIQ2_XXS.putGroup(dst[2+8*g:], dst[6+8*g:], b.codes[32*g:], b.subs[g])
	}
}

// putSubs writes 16 sub-scales of 4 bits, or 8.
func putSubs(dst []byte, subs []int8) {
	for i := range dst {
		dst[i] = byte(subs[2*i]>>1) | byte(subs[2*i+1]>>1)<<4
	}
}

// IQ2_XS: d, 32 words of 9 bits of index and 7 signs, 16 sub-scales of 4 bits.
func unpackIQ2_XS(b *block, src []byte) {
	for g, v := range src[66:74] {
		b.subs[2*g], b.subs[2*g+1] = odd(v), odd(v>>4)
	}
	for l := range 32 {
		word := le.Uint16(src[2+2*l:])
		signed(b.codes[8*l:][:8], latticeIQ2_XS[word&511], 2, &valuesIQ2, evenSigns(uint32(word>>9)))
	}
}

func packIQ2_XS(dst []byte, b *block) {
	for l := range 32 {
		i, signs, _ := pointsIQ2_XS.find(b.codes[8*l:][:8])
		le.PutUint16(dst[2+2*l:], uint16(i)|uint16(signs&127)<<9)
	}
	putSubs(dst[66:74], b.subs[:])
}

// IQ2_S: d, 32 bytes of indices, 32 bytes of signs, 8 bytes with 2 high bits of 4 indices, 16
// sub-scales of 4 bits.
func unpackIQ2_S(b *block, src []byte) {
	low, signs, high := src[2:34], src[34:66], src[66:74]
	for g, v := range src[74:82] {
		b.subs[2*g], b.subs[2*g+1] = odd(v), odd(v>>4)
	}
	for l := range 32 {
		i := int(low[l]) | int(high[l/4]>>(l%4*2)&3)<<8
		signed(b.codes[8*l:][:8], latticeIQ2_S[i], 2, &valuesIQ2, signs[l])
	}
}

func packIQ2_S(dst []byte, b *block) {
	pointsIQ2_S.putPoints(dst[2:34], dst[66:74], dst[34:66], b.codes[:])
	putSubs(dst[74:82], b.subs[:])
}

// IQ3_XXS: d, 64 indices, then for each group 4 times 7 signs and 4 bits of sub-scale.
func unpackIQ3_XXS(b *block, src []byte) {
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

func packIQ3_XXS(dst []byte, b *block) {
	for g := range 8 {
		pointsIQ3_XXS.putGroup(dst[2+8*g:], dst[66+4*g:], b.codes[32*g:], b.subs[g])
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

func packIQ3_S(dst []byte, b *block) {
	pointsIQ3_S.putPoints(dst[2:66], dst[66:74], dst[74:106], b.codes[:])
	putSubs(dst[106:110], b.subs[:])
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
