package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// read only reads, 4 vectors at a time.
func read(isa emit.ISA) {
	name := "read" + isa.Suffix()
	step := 4 * isa.Bytes()
	emit.Func(name, "func(p *byte, n int) uint64", name+" is readGeneric for n bytes, a positive multiple of 256.")
	p := Load(Param("p"), GP64())
	n := Load(Param("n"), GP64())
	sums := isa.Vectors(4)
	for _, s := range sums {
		isa.Zero(s)
	}
	Label("loop")
	for i, s := range sums {
		VPADDQ(operand.Mem{Base: p, Disp: i * isa.Bytes()}, s, s)
	}
	ADDQ(operand.U32(step), p)
	SUBQ(operand.U32(step), n)
	JNE(operand.LabelRef("loop"))

	sum := sums[0]
	for _, s := range sums[1:] {
		VPADDQ(s, sum, sum)
	}
	if isa == emit.AVX512 {
		high := YMM()
		VEXTRACTI64X4(operand.U8(1), sum, high)
		VPADDQ(high, sum.AsY(), sum.AsY())
	}
	high := XMM()
	VEXTRACTI128(operand.U8(1), sum.AsY(), high)
	VPADDQ(high, sum.AsX(), sum.AsX())
	VPSHUFD(operand.U8(0b01_00_11_10), sum.AsX(), high)
	VPADDQ(high, sum.AsX(), sum.AsX())
	result := GP64()
	VMOVQ(sum.AsX(), result)
	Store(result, ReturnIndex(0))
	VZEROUPPER()
	RET()
}
