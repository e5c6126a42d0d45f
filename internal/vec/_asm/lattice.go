package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Predicates of VCMPPS; none raises an exception.
const (
	less      = 0x11
	atMost    = 0x12
	atLeast   = 0x1d
	exceeding = 0x1e
)

// latticeGroups keeps eight groups in lanes. Of their four least magnitudes it sorts out the least:
// the test holds for it always.
func latticeGroups() {
	TEXT("latticeGroupsBlock", NOSPLIT, "func(mask *uint8, lo, hi *float32, least *uint32, t *float32, blocks int)")
	Doc("latticeGroupsBlock is latticeGroupsGeneric with AVX2 for groups in blocks of 8, blocks positive. t is a LatticeTest.")
	Pragma("noescape")
	mask := Load(Param("mask"), GP64())
	lo := Load(Param("lo"), GP64())
	hi := Load(Param("hi"), GP64())
	least := Load(Param("least"), GP64())
	t := Load(Param("t"), GP64())
	blocks := Load(Param("blocks"), GP64())
	field := func(i int) reg.VecVirtual {
		v := YMM()
		VBROADCASTSS(operand.Mem{Base: t, Disp: 4 * i}, v)
		return v
	}
	const inverse, exempt, smaller, normal, err = 0, 1, 2, 3, 4
	one, magnitude := ones(), YMM()
	VPCMPEQD(magnitude, magnitude, magnitude)
	VPSRLD(operand.Imm(1), magnitude, magnitude)

	Label("block")
	e, other, bound := YMM(), YMM(), YMM()
	zeroed(e)
	VSUBPS(operand.Mem{Base: lo}, e, other)
	VMAXPS(operand.Mem{Base: hi}, other, e)
	VMINPS(operand.Mem{Base: hi}, other, other)
	VMULPS(field(smaller), other, other)
	VADDPS(other, e, e)
	VMULPS(field(inverse), e, bound)

	// 4 rows of 4 lanes, twice side by side, become 4 columns
	var rows, pairs, m [4]reg.VecVirtual
	for i := range rows {
		rows[i], pairs[i], m[i] = YMM(), YMM(), YMM()
		VBROADCASTI128(operand.Mem{Base: least, Disp: 16 * i}, rows[i])
		VINSERTI128(operand.Imm(1), operand.Mem{Base: least, Disp: 16 * (i + 4)}, rows[i], rows[i])
	}
	for i := range 2 {
		VPUNPCKLDQ(rows[2*i+1], rows[2*i], pairs[2*i])
		VPUNPCKHDQ(rows[2*i+1], rows[2*i], pairs[2*i+1])
	}
	for i := range 2 {
		VPUNPCKLQDQ(pairs[2+i], pairs[i], m[2*i])
		VPUNPCKHQDQ(pairs[2+i], pairs[i], m[2*i+1])
	}
	order := func(i, j int) {
		t := YMM()
		VPMINUD(m[j], m[i], t)
		VPMAXUD(m[j], m[i], m[j])
		m[i] = t
	}
	order(0, 1)
	order(2, 3)
	order(0, 2)
	minus1 := YMM()
	VPCMPEQD(minus1, minus1, minus1)
	for _, v := range m {
		VPSUBD(minus1, v, v)
		VPSRLD(operand.Imm(1), v, v)
	}
	a := m[0]

	active, found, passed := YMM(), YMM(), YMM()
	VCMPPS(operand.Imm(atLeast), bound, a, active)
	VCMPPS(operand.Imm(atMost), field(exempt), e, passed)
	VORPS(passed, active, active)
	zeroed(found)
	VCMPPS(operand.Imm(exceeding), found, e, passed)
	VANDPS(passed, active, active)
	small := field(normal)
	VCMPPS(operand.Imm(less), small, a, found)
	VANDPS(active, found, found)
	VXORPS(found, active, active)
	left := GP32()
	VMOVMSKPS(active, left)
	TESTL(left, left)
	JEQ(operand.LabelRef("store"))

	i, exponent, bits := YMM(), YMM(), YMM()
	VDIVPS(a, one, i)
	VPSRLD(operand.Imm(24), minus1, exponent)
	VPSLLD(operand.Imm(23), exponent, exponent)
	relative := func(v reg.VecVirtual, h reg.VecVirtual) {
		VANDPS(exponent, v, h)
		VMAXPS(small, h, h)
		VMULPS(i, h, h)
		VMULPS(field(err), h, h)
	}
	slope := YMM()
	relative(a, slope)
	MOVL(operand.U32(math.Float32bits(0x1p-20)), left)
	slop := XMM()
	VMOVD(left, slop)
	VPBROADCASTD(slop, bits)
	VADDPS(bits, slope, slope)
	var x, tolerance [4]reg.VecVirtual
	for j := 1; j < 4; j++ {
		x[j], tolerance[j] = YMM(), YMM()
		relative(m[j], tolerance[j])
		VMULPS(i, m[j], x[j])
		VMULPS(slope, x[j], m[j])
		VADDPS(m[j], tolerance[j], tolerance[j])
	}
	c := YMM()
	VMOVAPS(one, c)

	Label("count")
	failed := YMM()
	for j := 1; j < 4; j++ {
		v, r := YMM(), YMM()
		VMULPS(c, x[j], v)
		VROUNDPS(operand.Imm(nearestEven), v, r)
		VSUBPS(r, v, v)
		VANDPS(magnitude, v, v)
		VMULPS(c, tolerance[j], r)
		if j == 1 {
			VCMPPS(operand.Imm(exceeding), r, v, failed)
			continue
		}
		VCMPPS(operand.Imm(exceeding), r, v, v)
		VORPS(v, failed, failed)
	}
	VANDPS(active, failed, failed)
	VXORPS(failed, active, active)
	VORPS(active, found, found)
	VADDPS(one, c, c)
	next := YMM()
	VMULPS(bound, c, next)
	VCMPPS(operand.Imm(atMost), a, next, next)
	VANDPS(next, failed, active)
	VMOVMSKPS(active, left)
	TESTL(left, left)
	JNE(operand.LabelRef("count"))

	Label("store")
	VMOVMSKPS(found, left)
	MOVB(left.As8(), operand.Mem{Base: mask})
	INCQ(mask)
	ADDQ(operand.Imm(32), lo)
	ADDQ(operand.Imm(32), hi)
	ADDQ(operand.U32(128), least)
	DECQ(blocks)
	JNE(operand.LabelRef("block"))
	VZEROUPPER()
	RET()
}
