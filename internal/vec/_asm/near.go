package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// nearScales runs for each half of the lanes.
func nearScales() {
	TEXT("nearScalesBlock", NOSPLIT, "func(stored, scaled *float32, near, distances *uint32, count int, least, most uint32)")
	Doc("nearScalesBlock is nearScalesGeneric with AVX2 for count distances, count positive. near is a Near.")
	Pragma("noescape")
	near := Load(Param("near"), GP64())
	half := GP64()
	XORQ(half, half)
	size, least, most := YMM(), YMM(), YMM()
	VPCMPEQD(size, size, size)
	VPSRLD(operand.Imm(1), size, size)
	broadcast("least", least)
	broadcast("most", most)

	Label("half")
	stored := Load(Param("stored"), GP64())
	scaled := Load(Param("scaled"), GP64())
	distances := Load(Param("distances"), GP64())
	count := Load(Param("count"), GP64())
	from, present, unit, product := YMM(), YMM(), YMM(), YMM()
	VMOVDQU(operand.Mem{Base: near, Index: half, Scale: 1}, from)
	VMOVUPS(operand.Mem{Base: near, Index: half, Scale: 1, Disp: 64}, present)
	VMOVUPS(operand.Mem{Base: near, Index: half, Scale: 1, Disp: 128}, unit)
	VMULPS(unit, present, product)
	VMOVUPS(present, operand.Mem{Base: stored, Index: half, Scale: 1})
	VMOVUPS(product, operand.Mem{Base: scaled, Index: half, Scale: 1})

	Label("distances")
	ADDQ(operand.Imm(64), stored)
	ADDQ(operand.Imm(64), scaled)
	scale, magnitude, below := YMM(), YMM(), YMM()
	VPBROADCASTD(operand.Mem{Base: distances}, scale)
	VPADDD(from, scale, scale)
	VPAND(size, scale, magnitude)
	VPCMPGTD(magnitude, least, below)
	VPCMPGTD(most, magnitude, magnitude)
	VPOR(below, magnitude, magnitude)
	VBLENDVPS(magnitude, present, scale, scale)
	VMULPS(unit, scale, product)
	VMOVUPS(scale, operand.Mem{Base: stored, Index: half, Scale: 1})
	VMOVUPS(product, operand.Mem{Base: scaled, Index: half, Scale: 1})
	ADDQ(operand.Imm(4), distances)
	DECQ(count)
	JNE(operand.LabelRef("distances"))
	ADDQ(operand.Imm(32), half)
	CMPQ(half, operand.Imm(64))
	JNE(operand.LabelRef("half"))
	VZEROUPPER()
	RET()
}
