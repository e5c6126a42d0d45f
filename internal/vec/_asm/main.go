// The command _asm writes the AVX2 and AVX-512 implementations of package vec: go generate here, or
//
//	go run . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg vec
//
// It is a module of its own so that users of gq never see its dependencies.
package main

//go:generate go run . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg vec

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("!purego")
	widen("widenBF16Block", "widenBF16Block is widenBF16Generic with AVX2 for n values, n a positive multiple of 16.",
		func(src operand.Mem, dst reg.VecVirtual) {
			VPMOVZXWD(src, dst)
			VPSLLD(operand.Imm(16), dst, dst)
		})
	widen("widenF16Block", "widenF16Block is widenF16Generic with F16C for n values, n a positive multiple of 16.",
		func(src operand.Mem, dst reg.VecVirtual) { VCVTPH2PS(src, dst) })
	groupRange()
	leastMagnitudes()
	latticeGroups()
	quantizeGroups(false)
	quantizeGroups(true)
	searchScales()
	scaleErrors()
	sumSquares()
	importance()
	columnSums()
	columnCodes()
	fitRanges()
	gridErrors()
	fits()
	grids()
	nearScales()
	decodeNibbles()
	decodeBytes()
	stepSoft()
	Generate()
}

// widen loops over 16 values of 2 bytes; convert widens 8 of them.
func widen(name, doc string, convert func(src operand.Mem, dst reg.VecVirtual)) {
	TEXT(name, NOSPLIT, "func(dst *float32, src *byte, n int)")
	Doc(doc)
	Pragma("noescape")
	dst := Load(Param("dst"), GP64())
	src := Load(Param("src"), GP64())
	n := Load(Param("n"), GP64())

	Label("loop")
	y := [2]reg.VecVirtual{YMM(), YMM()}
	for i, y := range y {
		convert(operand.Mem{Base: src, Disp: 16 * i}, y)
	}
	for i, y := range y {
		VMOVUPS(y, operand.Mem{Base: dst, Disp: 32 * i})
	}
	ADDQ(operand.Imm(32), src)
	ADDQ(operand.Imm(64), dst)
	SUBQ(operand.Imm(16), n)
	JNE(operand.LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// groupRange computes minimum and maximum on the bits. As signed integers, starting at 0, the
// largest is the largest positive float; as unsigned integers, starting at the bits of -0, the
// largest is the most negative float. This costs two instructions a vector; float minimum, maximum
// and a test for NaN cost four. NaNs and infinities are the largest.
func groupRange() {
	TEXT("groupRangeBlock", NOSPLIT, "func(lo, hi, x *float32, groups, group int) (top uint32)")
	Doc("groupRangeBlock is groupRangeGeneric with AVX2 for whole groups, group a multiple of 16, both counts positive.",
		"It returns the largest of all magnitudes' bits: at or above expMask if a value is not finite.")
	Pragma("noescape")
	lo := Load(Param("lo"), GP64())
	hi := Load(Param("hi"), GP64())
	x := Load(Param("x"), GP64())
	groups := Load(Param("groups"), GP64())
	group := Load(Param("group"), GP64())
	n := GP64()

	zero, sign, top := YMM(), YMM(), YMM()
	VPXOR(zero, zero, zero)
	VPXOR(top, top, top)
	VPCMPEQD(sign, sign, sign)
	VPSLLD(operand.Imm(31), sign, sign)

	Label("group")
	high := [2]reg.VecVirtual{YMM(), YMM()}
	low := [2]reg.VecVirtual{YMM(), YMM()}
	for i := range 2 {
		VMOVDQA(zero, high[i])
		VMOVDQA(sign, low[i])
	}
	MOVQ(group, n)

	Label("values")
	for i := range 2 {
		v := YMM()
		VMOVDQU(operand.Mem{Base: x, Disp: 32 * i}, v)
		VPMAXSD(v, high[i], high[i])
		VPMAXUD(v, low[i], low[i])
	}
	ADDQ(operand.Imm(64), x)
	SUBQ(operand.Imm(16), n)
	JNE(operand.LabelRef("values"))

	VPMAXSD(high[1], high[0], high[0])
	VPMAXUD(low[1], low[0], low[0])
	// From here on both are magnitudes, reduced together: maxima in the lower half, minima in the
	// upper one.
	VPXOR(sign, low[0], low[0])
	m, t := YMM(), YMM()
	VPERM2I128(operand.Imm(0x20), low[0], high[0], m)
	VPERM2I128(operand.Imm(0x31), low[0], high[0], t)
	VPMAXUD(t, m, m)
	VPSHUFD(operand.Imm(0b01_00_11_10), m, t)
	VPMAXUD(t, m, m)
	VPSHUFD(operand.Imm(0b10_11_00_01), m, t)
	VPMAXUD(t, m, m)
	VPMAXUD(m, top, top)
	VMOVD(m.AsX(), operand.Mem{Base: hi})
	VEXTRACTI128(operand.Imm(1), m, m.AsX())
	VSUBPS(m.AsX(), zero.AsX(), m.AsX()) // 0 - magnitude: exact, and +0 if no value is negative
	VMOVD(m.AsX(), operand.Mem{Base: lo})
	ADDQ(operand.Imm(4), hi)
	ADDQ(operand.Imm(4), lo)
	DECQ(groups)
	JNE(operand.LabelRef("group"))

	VEXTRACTI128(operand.Imm(1), top, t.AsX())
	VPMAXUD(t.AsX(), top.AsX(), top.AsX())
	result := GP32()
	VMOVD(top.AsX(), result)
	Store(result, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// leastMagnitudes doubles the bits, which drops the sign, and takes 1 from them.
func leastMagnitudes() {
	TEXT("leastMagnitudesBlock", NOSPLIT, "func(least *uint32, x *float32, groups, group int)")
	Doc("leastMagnitudesBlock is leastMagnitudesGeneric with AVX2 for whole groups, group a multiple of 16, both counts positive.")
	Pragma("noescape")
	least := Load(Param("least"), GP64())
	x := Load(Param("x"), GP64())
	groups := Load(Param("groups"), GP64())
	group := Load(Param("group"), GP64())
	n := GP64()
	minus1 := YMM()
	VPCMPEQD(minus1, minus1, minus1)

	Label("group")
	m := [2]reg.VecVirtual{YMM(), YMM()}
	for i := range m {
		VMOVDQA(minus1, m[i])
	}
	MOVQ(group, n)

	Label("values")
	for i := range m {
		v := YMM()
		VMOVDQU(operand.Mem{Base: x, Disp: 32 * i}, v)
		VPADDD(v, v, v)
		VPADDD(minus1, v, v)
		VPMINUD(v, m[i], m[i])
	}
	ADDQ(operand.Imm(64), x)
	SUBQ(operand.Imm(16), n)
	JNE(operand.LabelRef("values"))

	VPMINUD(m[1], m[0], m[0])
	half := XMM()
	VEXTRACTI128(operand.Imm(1), m[0], half)
	VPMINUD(half, m[0].AsX(), half)
	VMOVDQU(half, operand.Mem{Base: least})
	ADDQ(operand.Imm(16), least)
	DECQ(groups)
	JNE(operand.LabelRef("group"))
	VZEROUPPER()
	RET()
}

// quantizeGroups rounds by conversion to int32, which follows MXCSR: to nearest even, as Go sets
// it.
func quantizeGroups(fractions bool) {
	if fractions {
		TEXT("quantizeFractionsBlock", NOSPLIT, "func(q *int8, x, scale, inv *float32, zero *int8, fraction *float32, zeroStep, groups, group, qmin, qmax int, acc *float64)")
		Doc("quantizeFractionsBlock is quantizeGroupsBlock with a fraction of each group.")
	} else {
		TEXT("quantizeGroupsBlock", NOSPLIT, "func(q *int8, x, scale, inv *float32, zero *int8, zeroStep, groups, group, qmin, qmax int, acc *float64)")
		Doc("quantizeGroupsBlock is quantizeGroupsGeneric with AVX2 for whole groups, group a multiple of 16, both counts positive.",
			"With zeroStep 1 each group has its zero point, with 0 all share the one at zero. acc is an ErrorSum's 32 sums.")
	}
	Pragma("noescape")
	q := Load(Param("q"), GP64())
	x := Load(Param("x"), GP64())
	scale := Load(Param("scale"), GP64())
	inv := Load(Param("inv"), GP64())
	zero := Load(Param("zero"), GP64())
	groups := Load(Param("groups"), GP64())
	acc := Load(Param("acc"), GP64())
	zeroStep := Load(Param("zeroStep"), GP64())
	left, n := GP64(), GP64()
	lanes := AllocLocal(128)
	var fraction reg.Register
	var yFraction reg.VecVirtual
	if fractions {
		fraction, yFraction = Load(Param("fraction"), GP64()), YMM()
	}

	yScale, yInv, yZero, yMin, yMax := YMM(), YMM(), YMM(), YMM(), YMM()
	noise := [2]reg.VecVirtual{YMM(), YMM()}
	signal := [2]reg.VecVirtual{YMM(), YMM()}
	loadZero := func() {
		z, t := GP64(), GP64()
		MOVBQSX(operand.Mem{Base: zero}, z)
		VMOVD(z.As32(), yZero.AsX())
		VPBROADCASTW(yZero.AsX(), yZero)
		for _, limit := range []struct {
			param string
			y     reg.VecVirtual
		}{{"qmin", yMin}, {"qmax", yMax}} {
			Load(Param(limit.param), t)
			SUBQ(z, t)
			VMOVD(t.As32(), limit.y.AsX())
			VPBROADCASTD(limit.y.AsX(), limit.y)
			VCVTDQ2PS(limit.y, limit.y)
		}
	}
	loadZero()

	Label("group")
	VBROADCASTSS(operand.Mem{Base: scale}, yScale)
	VBROADCASTSS(operand.Mem{Base: inv}, yInv)
	ADDQ(operand.Imm(4), scale)
	ADDQ(operand.Imm(4), inv)
	if fractions {
		VBROADCASTSS(operand.Mem{Base: fraction}, yFraction)
		ADDQ(operand.Imm(4), fraction)
	}
	TESTQ(zeroStep, zeroStep)
	JEQ(operand.LabelRef("haveZero"))
	loadZero()
	ADDQ(zeroStep, zero)
	Label("haveZero")
	Load(Param("group"), left)

	Label("sums")
	for i := range 2 {
		VXORPS(noise[i], noise[i], noise[i])
		VXORPS(signal[i], signal[i], signal[i])
	}
	chunk(n, left)

	Label("values")
	codes := [2]reg.VecVirtual{YMM(), YMM()}
	for i := range 2 {
		v, r := YMM(), YMM()
		VMOVUPS(operand.Mem{Base: x, Disp: 32 * i}, v)
		VMULPS(yInv, v, r)
		if fractions {
			VADDPS(yFraction, r, r)
		}
		VMAXPS(yMin, r, r)
		VMINPS(yMax, r, r)
		VCVTPS2DQ(r, codes[i])
		VCVTDQ2PS(codes[i], r)
		if fractions {
			VSUBPS(yFraction, r, r)
		}
		VMULPS(yScale, r, r)
		VSUBPS(r, v, r)
		VMULPS(r, r, r)
		VADDPS(r, noise[i], noise[i])
		VMULPS(v, v, v)
		VADDPS(v, signal[i], signal[i])
	}
	VPACKSSDW(codes[1], codes[0], codes[0])
	VPADDW(yZero, codes[0], codes[0])
	VEXTRACTI128(operand.Imm(1), codes[0], codes[1].AsX())
	VPACKSSWB(codes[1].AsX(), codes[0].AsX(), codes[0].AsX())
	VPSHUFD(operand.Imm(0b11_01_10_00), codes[0].AsX(), codes[0].AsX())
	VMOVDQU(codes[0].AsX(), operand.Mem{Base: q})
	ADDQ(operand.Imm(64), x)
	ADDQ(operand.Imm(16), q)
	SUBQ(operand.Imm(16), n)
	JNE(operand.LabelRef("values"))

	// Through memory: converting a loaded half needs no shuffle (0.02 ns a value in groups of 32 on
	// a Zen 5).
	for i, sum := range []reg.VecVirtual{noise[0], noise[1], signal[0], signal[1]} {
		VMOVUPS(sum, lanes.Offset(32*i))
	}
	for i := range 8 {
		wide, at := YMM(), operand.Mem{Base: acc, Disp: 32 * i}
		VCVTPS2PD(lanes.Offset(16*i), wide)
		VADDPD(at, wide, wide)
		VMOVUPD(wide, at)
	}
	TESTQ(left, left)
	JNE(operand.LabelRef("sums"))
	DECQ(groups)
	JNE(operand.LabelRef("group"))
	VZEROUPPER()
	RET()
}
