package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// small3 is a kernel of codes of 3 bits with AVX2, whose unit has three planes of 16 bytes. Lanes 0
// to 3 are the two low fields of planes 0 and 1. Lanes 4 and 5 are the two low fields of plane 2.
// Lanes 6 and 7 have two bits in planes 0 and 1, and one in plane 2. So planes 0 and 1 are loaded
// once and plane 2 to both lanes, and no plane moves to another lane. A vector of lanes 4 and 5, or
// 6 and 7, holds two rows, and columns of the first 16 of a block beside columns of the last 16.
type small3 struct {
	low    operand.Op       // mask of a code
	words  reg.VecVirtual   // rows 0, 1 and 2, 3 of the panel: 4 words a row
	halves []reg.VecVirtual // rows 4, 5; rows 6, 7: lanes of the two halves of a block
}

// runBlocks3 is the number of blocks whose sums fit words: of each block, words hold 8 products of
// codes up to 7.
const runBlocks3 = 4

// block3 is block for 3 bits.
func (s *small) block3(i int, first bool) {
	and := func(mask, x operand.Op) reg.VecVirtual {
		y := YMM()
		VPAND(mask, x, y)
		return y
	}
	for unit := range 2 {
		at, planes, top := s.at(i*s.blockBytes()+unit*s.unitBytes()), YMM(), YMM()
		VMOVDQU(at, planes)
		VBROADCASTI128(at.Offset(32), top)
		acts := emit.AVX2.Vectors(3)
		for half := range 2 {
			VPBROADCASTQ(s.act(32*i+8*unit+16*half), acts[half])
		}
		VPBLENDD(operand.U8(0xf0), acts[1], acts[0], acts[2])
		sums := []*reg.VecVirtual{&s.three.words, &s.three.halves[0], &s.three.halves[1]}
		add := func(sum int, acts, codes reg.VecVirtual, first bool) {
			VPMADDUBSW(acts, codes, codes)
			if first && unit == 0 {
				*sums[sum] = codes
			} else {
				VPADDW(codes, *sums[sum], *sums[sum])
			}
		}
		x, y := YMM(), YMM()
		VPSRLW(operand.Imm(3), planes, x)
		add(0, acts[0], and(s.three.low, x), first)
		add(0, acts[1], and(s.three.low, planes), false)
		VPSRLVD(emit.Const[uint32](3, 3, 3, 3, 0, 0, 0, 0), top, x)
		add(1, acts[2], and(s.three.low, x), first)
		VPSRLW(operand.Imm(6), planes, planes)
		VPSRLVD(emit.Const[uint32](5, 5, 5, 5, 4, 4, 4, 4), top, y)
		codes := and(emit.AVX2.All(3), planes)
		VPOR(and(emit.AVX2.All(4), y), codes, codes)
		add(2, acts[2], codes, first)
	}
}

// dots3 is dots for 3 bits.
func (s *small) dots3() reg.VecVirtual {
	last, odd := YMM(), YMM() // rows 4, 5 and 6, 7
	VPERM2I128(operand.U8(0x20), s.three.halves[1], s.three.halves[0], last)
	VPERM2I128(operand.U8(0x31), s.three.halves[1], s.three.halves[0], odd)
	VPADDW(odd, last, last)
	VPMADDWD(emit.Ones(), last, last)
	VPMADDWD(emit.Ones(), s.three.words, s.three.words)
	t := emit.AVX2.PairSums(s.three.words, last)
	VPERMQ(operand.U8(0b11_01_10_00), t, t)
	return t
}
