package emit

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// PairSums adds the pairs of neighbouring dwords of two vectors, into a new register: in each lane
// the 2 sums of x, then the 2 sums of y. x and y may be the same.
func (isa ISA) PairSums(x, y reg.VecVirtual) reg.VecVirtual {
	odd, sums := isa.pairs(x, y)
	VPADDD(odd, sums, sums)
	return sums
}

// WordSums is PairSums of the two words of each dword.
func (isa ISA) WordSums(x, y reg.VecVirtual) reg.VecVirtual {
	odd, sums := isa.pairs(x, y)
	VPADDW(odd, sums, sums)
	return sums
}

// pairs are the odd and the even dwords of x, then of y, in each lane.
func (isa ISA) pairs(x, y reg.VecVirtual) (odd, even reg.VecVirtual) {
	odd, even = isa.Vector(), isa.Vector()
	VSHUFPS(operand.U8(0b11_01_11_01), y, x, odd)
	VSHUFPS(operand.U8(0b10_00_10_00), y, x, even)
	return odd, even
}

// PairAt is the place in the result of PairSums of a row of 8 whose pairs of dwords are adjacent in
// x (first 0) or y (first 8).
func PairAt(first, row int) int { return row/2*4 + first/4 + row%2 }

// Pairs are the rows of 16 in the order of the result of PairSums with AVX-512; Natural is the
// inverse.
func Pairs() operand.Mem {
	rows := make([]uint32, 16)
	for i := range rows {
		rows[PairAt(i/8*8, i%8)] = uint32(i)
	}
	return Const(rows...)
}

func Natural() operand.Mem {
	at := make([]uint32, 16)
	for i := range at {
		at[i] = uint32(PairAt(i/8*8, i%8))
	}
	return Const(at...)
}

// Ones holds words of 1: VPMADDWD with it adds pairs of words.
func Ones() operand.Mem { return AVX2.All32(0x00010001) }

// canonicalNaN is the constant that replaces every NaN of an output.
func canonicalNaN() operand.Mem { return Const(uint32(0x7fc00000)) }

// Canonical replaces the NaNs of v.
func (isa ISA) Canonical(v reg.VecVirtual) {
	const unordered = 3
	if isa == AVX512 {
		k := K()
		VCMPPS(operand.U8(unordered), v, v, k)
		VBROADCASTSS(canonicalNaN(), k, v)
		return
	}
	isNaN, nan := Like(v), Like(v)
	VCMPPS(operand.U8(unordered), v, v, isNaN)
	VBROADCASTSS(canonicalNaN(), nan)
	VBLENDVPS(isNaN, nan, v, v)
}
