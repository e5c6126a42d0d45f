package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// smallRows is the number of rows of activations of the products of small codes. Their sums, the
// outputs and 4 working registers are all 16 registers.
const smallRows = 4

// smallSteps is the number of steps whose sums fit 16 bits: with codes of up to 4 bits, VPMADDUBSW
// makes at most 2*15*128 of two columns, and each of a step's two chunks adds one of them to a
// word.
const smallSteps = 4

// small emits the products of codes of up to 4 bits with panels of 8 rows: sums of up to 64 columns
// stay in words. Groups of 32 columns take the short way: four chunks without a loop. Other groups
// go in blocks of up to smallSteps steps, whose sums are added up on the stack.
type small struct {
	*kernel
	sums [][]reg.VecVirtual // by row: words of rows 0..3 and of rows 4..7 of the panel, 4 words a row
	f    []reg.VecVirtual   // outputs, in the order of PairSums
	t    operand.Mem        // the stack: 8 dwords for each row of activations
}

func productSmall2(r result) {
	s := &small{kernel: begin(emit.AVX2, r, "Small", smallRows, 8)}
	for range smallRows {
		s.sums = append(s.sums, emit.AVX2.Vectors(2))
	}
	if r != dots {
		s.f = emit.AVX2.Vectors(smallRows)
		for _, f := range s.f {
			VPXOR(f, f, f)
		}
	}
	s.t = AllocLocal(32 * smallRows)
	Label("group")
	MOVLQSX(operand.Mem{Base: s.steps}, s.left)
	CMPQ(s.left, operand.U8(2))
	JNE(operand.LabelRef("long"))
	for i := range 4 {
		s.chunk(i, i == 0)
	}
	s.advance(2)
	for m := range s.sums {
		s.shortSums(m)
	}
	Label("flush")
	s.flush()
	s.next()
	JMP(operand.LabelRef("end"))
	s.long()
	Label("end")
	if r != dots {
		s.outputs()
	}
	VZEROUPPER()
	RET()
}

// chunk adds 8 columns of a step's chunk i to the sums, or begins the sums with them.
func (s *small) chunk(i int, first bool) {
	codes := []reg.VecVirtual{emit.AVX2.Load(s.code(64 * i)), emit.AVX2.Load(s.code(64*i + 32))}
	for m, sums := range s.sums {
		acts := YMM()
		VPBROADCASTQ(s.act(i, m), acts)
		if first {
			VPMADDUBSW(acts, codes[0], sums[0])
			VPMADDUBSW(acts, codes[1], sums[1])
			continue
		}
		p := YMM()
		VPMADDUBSW(acts, codes[0], p)
		VPADDW(p, sums[0], sums[0])
		VPMADDUBSW(acts, codes[1], acts)
		VPADDW(acts, sums[1], sums[1])
	}
}

// advance goes on by n steps and prefetches for them.
func (s *small) advance(n int) {
	s.prefetch(n)
	ADDQ(operand.U32(16*s.nr*n), s.codes)
	ADDQ(operand.U32(16*s.mr*n), s.acts)
}

// shortSums adds the 4 words of each row of the panel, for sums of 32 columns, two of which fit a
// word. The result, in the order of PairSums, is in the first of the sums.
func (s *small) shortSums(m int) {
	odd, even := YMM(), s.sums[m][0]
	VSHUFPS(operand.U8(0b11_01_11_01), s.sums[m][1], even, odd)
	VSHUFPS(operand.U8(0b10_00_10_00), s.sums[m][1], even, even)
	VPADDW(odd, even, even)
	VPMADDWD(emit.Ones(), even, even)
}

// long is the way of groups that are not 32 columns long.
func (s *small) long() {
	Label("long")
	at := func(m int) operand.Mem { return s.t.Offset(32 * m) }
	zero := YMM()
	VPXOR(zero, zero, zero)
	for m := range s.sums {
		VMOVDQU(zero, at(m))
	}
	Label("block")
	steps, most := GP64(), GP64()
	MOVQ(s.left, steps)
	MOVQ(operand.U32(smallSteps), most)
	CMPQ(steps, most)
	CMOVQGT(most, steps)
	SUBQ(steps, s.left)
	s.chunk(0, true)
	s.chunk(1, false)
	s.advance(1)
	DECQ(steps)
	JE(operand.LabelRef("add"))
	Label("step")
	s.chunk(0, false)
	s.chunk(1, false)
	s.advance(1)
	DECQ(steps)
	JNE(operand.LabelRef("step"))
	Label("add")
	for m, sums := range s.sums {
		VPMADDWD(emit.Ones(), sums[0], sums[0])
		VPMADDWD(emit.Ones(), sums[1], sums[1])
		t := emit.AVX2.PairSums(sums[0], sums[1])
		VPADDD(at(m), t, sums[0])
		VMOVDQU(sums[0], at(m))
	}
	TESTQ(s.left, s.left)
	JNE(operand.LabelRef("block"))
	JMP(operand.LabelRef("flush"))
}

// flush ends a group, whose sums of products are in the first of the sums of each row.
func (s *small) flush() {
	scales, zeros := YMM(), YMM()
	VPERMQ(operand.U8(0b11_01_10_00), operand.Mem{Base: s.zeros}, zeros)
	if s.result != dots {
		VPERMQ(operand.U8(0b11_01_10_00), operand.Mem{Base: s.scales}, scales)
	}
	finish := func(m int) reg.VecVirtual {
		t, z := s.sums[m][0], YMM()
		if s.result == shifted {
			VPSLLVD(s.arg("Shift"), t, t)
		}
		VPBROADCASTD(s.sum(m), z)
		VPMULLD(zeros, z, z)
		VPSUBD(z, t, t)
		return t
	}
	if s.result == dots {
		s.eachRow(s.out, func(m int, to operand.Mem) {
			t := finish(m)
			VPERMQ(operand.U8(0b11_01_10_00), t, t)
			VMOVDQU(t, to)
		})
		return
	}
	for m, f := range s.f {
		t := finish(m)
		VCVTDQ2PS(t, t)
		VFMADD231PS(scales, t, f)
	}
}

// outputs writes the outputs.
func (s *small) outputs() {
	s.eachRow(s.arg("Out"), func(m int, to operand.Mem) {
		f := s.f[m]
		VPERMQ(operand.U8(0b11_01_10_00), f, f)
		s.finishGroup(m, f, YMM())
		VMOVUPS(f, to)
	})
}
