package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Panels of KleidiAI's layouts with one scale a row end with an int32 sum, a float32 scale and a
// float32 bias for each row.

// finishPerChannel turns the dot products a, in order of row, into outputs. tail is the memory at
// an offset in the tails of the rows' panels.
func (k *kernel) finishPerChannel(isa emit.ISA, a reg.VecVirtual, tail func(offset int) operand.Op) {
	sums, scales, t := emit.Like(a), emit.Like(a), emit.Like(a)
	VPBROADCASTD(k.arg("NegZeroInt"), t)
	VPMULLD(tail(0), t, sums)
	VPADDD(sums, a, a)
	VCVTDQ2PS(a, a)
	VBROADCASTSS(k.arg("Rec"), t)
	VMULPS(tail(4*k.perPanel), t, scales)
	VMULPS(scales, a, a)
	VADDPS(tail(8*k.perPanel), a, a)
	isa.Canonical(a)
}

// qsi4cxp is a kernel of lowbit blocks of 4 bits without records.
func qsi4cxp(isa emit.ISA) *lowbit {
	name := "qsi4cxp" + isa.Suffix()
	return &lowbit{kernel: begin(name, name+" is the product of qsi4cxp panels 8x16x2.", "ChannelArgs", rows), isa: isa, bits: 4}
}

func qsi4cxp512(isa emit.ISA) {
	l := qsi4cxp(isa)
	l.planes = emit.NewPlanes(l.isa, l.bits, l.flip(), false, 0)
	natural := ZMM()
	VMOVDQU64(emit.Natural(), natural)
	l.eachPanel(func() {
		l.oneGroup(func() {
			x := l.dots512()
			both := l.total512(x, x)
			VPERMD(both, natural, both)
			t := both.AsY().(reg.VecVirtual)
			l.times16(t)
			l.finishPerChannel(l.isa, t, func(offset int) operand.Op { return l.at(offset) })
			VMOVUPS(t, operand.Mem{Base: l.dst})
		})
	})
}

func qsi4cxp2(isa emit.ISA) {
	l := qsi4cxp(isa)
	product := l.dots2()
	l.eachPanel(func() {
		l.oneGroup(func() {
			t := product()
			l.times16(t)
			l.finishPerChannel(l.isa, t, func(offset int) operand.Op { return l.at(offset) })
			VMOVUPS(t, operand.Mem{Base: l.dst})
		})
	})
}

// times16 turns dot products of unsigned codes into 16 times the dot products of codes, for which
// the sums and scales in the file are stored.
func (l *lowbit) times16(t reg.VecVirtual) {
	sum := emit.Like(t)
	VPBROADCASTD(operand.Mem{Base: l.sums}, sum)
	VPADDD(sum, t, t)
	VPSLLD(operand.Imm(4), t, t)
}
