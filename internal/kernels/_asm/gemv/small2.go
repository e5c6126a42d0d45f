package main

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// small is a kernel of codes of 1, 2 or, see small3, 3 bits with AVX2. At 1 and 2 bits, all of the
// 4 bits, or pairs of bits, of a nibble are codes. They are masked, but not shifted to the low end
// of the byte: their products are too large by a power of 2, which differs by field of the nibble,
// and words have room for that. Each field therefore has its own sums, which are shifted when they
// are added up. A field holds rows 0, 1 (first lane) and 4, 5 of the panel, or rows 2, 3 and 6, 7;
// and columns of the first or the last 16 of a block.
type small struct {
	*lowbit
	apart reg.VecVirtual   // 1 bit: shifts that make the nibbles of a byte the low ones of both lanes
	masks [2][2]operand.Op // of the fields, by columns and rows
	down  [2][2]int        // the fields' distance from the low end
	words [2][2]reg.VecVirtual
	three small3 // 3 bits, instead of the fields before
}

// lowbitSmall2 multiplies panel by panel, in groups of multiples of 32 columns. Groups of 32 and of
// 128 columns take ways of their own, without a loop over blocks.
func lowbitSmall2(bits int, v variant) {
	s := &small{lowbit: newLowbit(emit.AVX2, bits, v, false)}
	s.constants()
	for _, blocks := range []int{1, 4} {
		path := fmt.Sprint("blocks", blocks)
		other := "not" + path
		CMPQ(s.arg("Blocks"), operand.Imm(uint64(blocks)))
		JNE(operand.LabelRef(other))
		if blocks > 1 { // the last group may be shorter
			CMPQ(s.arg("LastBlocks"), operand.Imm(uint64(blocks)))
			JNE(operand.LabelRef(other))
		}
		s.path = path
		s.product(func(add func(dots reg.VecVirtual)) { s.eachOf(blocks, add) })
		Label(other)
	}
	s.path = ""
	s.product(s.eachLong)
}

// product emits the loop over panels. each goes through the groups of a panel and adds them up.
func (s *small) product(each func(add func(dots reg.VecVirtual))) {
	f := YMM()
	s.eachPanel(func() {
		VPXOR(f, f, f)
		each(func(dots reg.VecVirtual) { s.addGroup2(dots, f) })
		s.finish2(f)
	})
}

// eachOf goes through groups of so many blocks.
func (s *small) eachOf(blocks int, add func(dots reg.VecVirtual)) {
	s.eachGroup(func() {
		s.prefetch(blocks*s.blockBytes() + s.recordBytes())
		for i := range blocks {
			s.block(i, i == 0)
		}
		s.advance(blocks)
		add(s.dots())
	})
}

// eachLong goes through groups of any number of blocks. Words hold the sums of a run of blocks.
func (s *small) eachLong(add func(dots reg.VecVirtual)) {
	run, left := GP64(), GP64()
	MOVQ(operand.U32(s.runBlocks()), run)
	s.eachGroup(func() {
		sums := YMM()
		VPXOR(sums, sums, sums)
		Label("run")
		MOVQ(run, left)
		CMPQ(s.blocks, run)
		CMOVQLT(s.blocks, left)
		SUBQ(left, s.blocks)
		s.prefetch(s.blockBytes())
		s.block(0, true)
		s.advance(1)
		DECQ(left)
		JE(operand.LabelRef("runEnd"))
		Label("block")
		s.prefetch(s.blockBytes())
		s.block(0, false)
		s.advance(1)
		DECQ(left)
		JNE(operand.LabelRef("block"))
		Label("runEnd")
		VPADDD(s.dots(), sums, sums)
		TESTQ(s.blocks, s.blocks)
		JNE(operand.LabelRef("run"))
		s.prefetch(s.recordBytes())
		add(sums)
	})
}

// constants emits the masks of the fields.
func (s *small) constants() {
	if s.bits == 3 {
		s.three.low = emit.AVX2.Load(emit.AVX2.All(7))
		s.three.halves = make([]reg.VecVirtual, 2)
		return
	}
	if s.bits == 1 {
		s.down = [2][2]int{{3, 1}, {2, 0}}
		s.apart = emit.AVX2.Load(emit.Const[uint32](4, 4, 4, 4, 0, 0, 0, 0))
	} else {
		s.down = [2][2]int{{2, 2}, {0, 0}}
	}
	consts := map[int]operand.Op{}
	for half, list := range s.down {
		for i, down := range list {
			if consts[down] == nil {
				consts[down] = emit.AVX2.Load(emit.AVX2.All(uint8(1<<s.bits-1) << down))
			}
			s.masks[half][i] = consts[down]
		}
	}
}

// runBlocks is the number of blocks whose sums fit words. Each block adds the products of 4 columns
// to a word of a field, and the sum of all fields of two words must fit 16 bits as well.
func (s *small) runBlocks() int {
	if s.bits == 3 {
		return runBlocks3
	}
	highest := (1<<s.bits - 1) << s.down[0][0] * 128
	return min(1<<15/(4*highest), 1<<15/(16*(1<<s.bits-1)*128))
}

// block adds block i after the current place to the words, or begins them with it.
func (s *small) block(i int, first bool) {
	if s.bits == 3 {
		s.block3(i, first)
		return
	}
	for unit := range 2 {
		var nibbles [2]reg.VecVirtual // by rows: the fields are in the low nibbles
		at, codes := s.at(i*s.blockBytes()+unit*s.unitBytes()), YMM()
		if s.bits == 1 {
			VBROADCASTI128(at, codes)
			VPSRLVD(s.apart, codes, codes)
			nibbles = [2]reg.VecVirtual{codes, codes}
		} else {
			VMOVDQU(at, codes)
			high := YMM()
			VPSRLW(operand.Imm(4), codes, high)
			nibbles = [2]reg.VecVirtual{high, codes}
		}
		for half := range 2 {
			acts := YMM()
			VPBROADCASTQ(s.act(32*i+8*unit+16*half), acts)
			for rows, mask := range s.masks[half] {
				field := YMM()
				if s.inverted() {
					VPANDN(mask, nibbles[rows], field)
				} else {
					VPAND(mask, nibbles[rows], field)
				}
				VPMADDUBSW(acts, field, field)
				if first && unit == 0 {
					s.words[half][rows] = field
				} else {
					VPADDW(field, s.words[half][rows], s.words[half][rows])
				}
			}
		}
	}
}

// advance goes on by some blocks.
func (s *small) advance(blocks int) {
	ADDQ(operand.U32(32*blocks), s.acts)
	ADDQ(operand.U32(s.blockBytes()*blocks), s.codes)
}

// dots adds up the words of each row of the panel.
func (s *small) dots() reg.VecVirtual {
	if s.bits == 3 {
		return s.dots3()
	}
	var sums [2]reg.VecVirtual
	for i := range sums {
		for half, w := range s.words {
			if down := s.down[half][i]; down > 0 {
				VPSRAW(operand.U8(down), w[i], w[i])
			}
		}
		sums[i] = s.words[0][i]
		VPADDW(s.words[1][i], sums[i], sums[i])
	}
	t := emit.AVX2.WordSums(sums[0], sums[1])
	VPMADDWD(emit.Ones(), t, t)
	return t
}
