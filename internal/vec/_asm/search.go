package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const nearestEven = 8 // VROUNDPS: nearest, ties to even, no exception

// zeroed clears registers.
func zeroed(regs ...reg.VecVirtual) {
	for _, r := range regs {
		VXORPS(r, r, r)
	}
}

// chunk sets n to the smaller of left and 256, and subtracts it from left.
func chunk(n, left reg.Register) {
	MOVQ(operand.U32(256), n)
	CMPQ(left, n)
	CMOVQCS(left, n)
	SUBQ(n, left)
}

// ones returns a register of eight 1.0.
func ones() reg.VecVirtual {
	one := YMM()
	VPCMPEQD(one, one, one)
	VPSRLD(operand.Imm(25), one, one)
	VPSLLD(operand.Imm(23), one, one) // 0x3f800000
	return one
}

// broadcast sets all lanes of r to a float32 parameter.
func broadcast(param string, r reg.VecVirtual) {
	p, _ := Param(param).Resolve()
	VBROADCASTSS(p.Addr, r)
}

// nearestCode clamps q to lo .. hi and rounds it.
func nearestCode(q reg.VecVirtual, lo, hi operand.Op) {
	VMAXPS(lo, q, q)
	VMINPS(hi, q, q)
	VROUNDPS(operand.Imm(nearestEven), q, q)
}

// addError adds the error of a value that became q, squared and with the weight at w, to sum. It
// overwrites value and q.
func addError(value, q reg.VecVirtual, w operand.Mem, sum reg.VecVirtual) {
	VSUBPS(q, value, value)
	VBROADCASTSS(w, q)
	VMULPS(value, q, q)
	VMULPS(value, q, q)
	VADDPS(q, sum, sum)
}

// pairs calls add(i) for n values at x and w, i = 0 at even and 1 at odd indexes, and adds the sums
// up. Two sums make additions wait for each other half as long.
func pairs(x, w, n reg.Register, sum [2]reg.VecVirtual, add func(i int)) {
	SUBQ(operand.Imm(2), n)
	JCS(operand.LabelRef("odd"))

	Label("values")
	add(0)
	add(1)
	ADDQ(operand.Imm(8), x)
	ADDQ(operand.Imm(8), w)
	SUBQ(operand.Imm(2), n)
	JCC(operand.LabelRef("values"))

	Label("odd")
	ADDQ(operand.Imm(2), n)
	JEQ(operand.LabelRef("total"))
	add(0)

	Label("total")
	VADDPS(sum[1], sum[0], sum[0])
}

// score sets a to the score a*a/b of a vector of candidates, and stores it.
func score(a, b, zero reg.VecVirtual, to operand.Mem) {
	VMULPS(a, a, a)
	VDIVPS(b, a, a)
	VMAXPS(zero, a, a) // gives the zero for a NaN
	VMOVUPS(a, to)
}

// searchScales keeps the candidates in lanes, in four vectors, and goes through the values one by
// one. No sum crosses lanes, so every group size is equally fast.
func searchScales() {
	TEXT("searchScalesBlock", NOSPLIT, "func(s *float32, unit float32, x, w *float32, n int)")
	Doc("searchScalesBlock is searchScalesGeneric with AVX2 for n values, n positive.")
	Pragma("noescape")
	s := Load(Param("s"), GP64())
	x := Load(Param("x"), GP64())
	w := Load(Param("w"), GP64())
	left := Load(Param("n"), GP64())
	n := GP64()
	at := func(field, v int) operand.Mem { return operand.Mem{Base: s, Disp: 128*field + 32*v} }
	const inverse, lo, hi, product, scores = 0, 1, 2, 3, 4

	var a, b, inv [4]reg.VecVirtual
	for v := range 4 {
		a[v], b[v], inv[v] = YMM(), YMM(), YMM()
	}
	value, weight := YMM(), YMM()
	broadcast("unit", value)
	zeroed(weight)
	for v := range 4 {
		VMULPS(at(inverse, v), value, inv[v])
		VMOVUPS(weight, at(product, v)) // the totals
		VMOVUPS(weight, at(scores, v))
	}

	Label("sums")
	for v := range 4 {
		zeroed(a[v], b[v])
	}
	chunk(n, left)

	Label("values")
	VBROADCASTSS(operand.Mem{Base: x}, value)
	VBROADCASTSS(operand.Mem{Base: w}, weight)
	for v := range 4 {
		q, p := YMM(), YMM()
		VMULPS(inv[v], value, q)
		nearestCode(q, at(lo, v), at(hi, v))
		VMULPS(q, weight, p)
		VMULPS(q, p, q)
		VADDPS(q, b[v], b[v])
		VMULPS(value, p, p)
		VADDPS(p, a[v], a[v])
	}
	ADDQ(operand.Imm(4), x)
	ADDQ(operand.Imm(4), w)
	DECQ(n)
	JNE(operand.LabelRef("values"))

	for v := range 4 {
		VADDPS(at(product, v), a[v], a[v])
		VMOVUPS(a[v], at(product, v))
		VADDPS(at(scores, v), b[v], b[v])
		VMOVUPS(b[v], at(scores, v))
	}
	TESTQ(left, left)
	JNE(operand.LabelRef("sums"))

	zero := value
	zeroed(zero)
	for v := range 4 {
		score(a[v], b[v], zero, at(scores, v))
	}
	VZEROUPPER()
	RET()
}

// scaleErrors has one vector of candidates and two sums, for values at even and at odd indexes.
func scaleErrors() {
	TEXT("scaleErrorsBlock", NOSPLIT, "func(f *float32, x, w *float32, n int)")
	Doc("scaleErrorsBlock is scaleErrorsGeneric with AVX2 for n values, n positive.")
	Pragma("noescape")
	f := Load(Param("f"), GP64())
	x := Load(Param("x"), GP64())
	w := Load(Param("w"), GP64())
	left := Load(Param("n"), GP64())
	n := GP64()
	at := func(field int) operand.Mem { return operand.Mem{Base: f, Disp: 32 * field} }

	scale, lo, hi, inv, total := YMM(), YMM(), YMM(), YMM(), YMM()
	VMOVUPS(at(0), scale)
	VMOVUPS(at(1), lo)
	VMOVUPS(at(2), hi)
	one := ones()
	VDIVPS(scale, one, inv)
	sum := [2]reg.VecVirtual{YMM(), YMM()}
	zeroed(total)
	add := func(i int) {
		value, q := YMM(), YMM()
		VBROADCASTSS(operand.Mem{Base: x, Disp: 4 * i}, value)
		VMULPS(inv, value, q)
		nearestCode(q, lo, hi)
		VMULPS(scale, q, q)
		addError(value, q, operand.Mem{Base: w, Disp: 4 * i}, sum[i])
	}

	Label("sums")
	zeroed(sum[0], sum[1])
	chunk(n, left)
	pairs(x, w, n, sum, add)
	VADDPS(sum[0], total, total)
	TESTQ(left, left)
	JNE(operand.LabelRef("sums"))
	VMOVUPS(total, at(3))
	VZEROUPPER()
	RET()
}

func sumSquares() {
	TEXT("sumSquaresBlock", NOSPLIT, "func(sum *float64, x *float32, n int)")
	Doc("sumSquaresBlock is sumSquaresGeneric with AVX2 for n values, n a positive multiple of 256.")
	Pragma("noescape")
	sum := Load(Param("sum"), GP64())
	x := Load(Param("x"), GP64())
	left := Load(Param("n"), GP64())
	n := GP64()
	run := [2]reg.VecVirtual{YMM(), YMM()}
	var total [4]reg.VecVirtual
	for i := range total {
		total[i] = YMM()
		VMOVUPD(operand.Mem{Base: sum, Disp: 32 * i}, total[i])
	}

	Label("sums")
	zeroed(run[0], run[1])
	MOVQ(operand.U32(256/16), n)

	Label("values")
	for i := range run {
		v := YMM()
		VMOVUPS(operand.Mem{Base: x, Disp: 32 * i}, v)
		VMULPS(v, v, v)
		VADDPS(v, run[i], run[i])
	}
	ADDQ(operand.Imm(64), x)
	DECQ(n)
	JNE(operand.LabelRef("values"))

	for i := range total {
		half, wide := XMM(), YMM()
		VEXTRACTF128(operand.Imm(uint64(i%2)), run[i/2], half)
		VCVTPS2PD(half, wide)
		VADDPD(wide, total[i], total[i])
	}
	SUBQ(operand.U32(256), left)
	JNE(operand.LabelRef("sums"))
	for i := range total {
		VMOVUPD(total[i], operand.Mem{Base: sum, Disp: 32 * i})
	}
	VZEROUPPER()
	RET()
}

// columnSums keeps a chain for each column, four vectors of them, so that additions need not wait
// for each other.
func columnSums() {
	TEXT("columnSumsBlock", NOSPLIT, "func(sum, e, v *float32, n int)")
	Doc("columnSumsBlock is columnSumsGeneric with AVX2 for n factors, n positive.")
	Pragma("noescape")
	sum := Load(Param("sum"), GP64())
	e := Load(Param("e"), GP64())
	v := Load(Param("v"), GP64())
	n := Load(Param("n"), GP64())
	var total [4]reg.VecVirtual
	for i := range total {
		total[i] = YMM()
	}
	zeroed(total[:]...)

	Label("factors")
	factor := YMM()
	VBROADCASTSS(operand.Mem{Base: v}, factor)
	for i := range total {
		product := YMM()
		VMULPS(operand.Mem{Base: e, Disp: 32 * i}, factor, product)
		VADDPS(product, total[i], total[i])
	}
	ADDQ(operand.Imm(4), v)
	ADDQ(operand.U32(128), e)
	DECQ(n)
	JNE(operand.LabelRef("factors"))
	for i := range total {
		VMOVUPS(total[i], operand.Mem{Base: sum, Disp: 32 * i})
	}
	VZEROUPPER()
	RET()
}

// columnCodes goes through four vectors of lanes.
func columnCodes() {
	TEXT("columnCodesBlock", NOSPLIT, "func(grids, values, shifts, codes, sums *float32)")
	Doc("columnCodesBlock is columnCodesGeneric with AVX2. grids points to the scales of a ColumnGrids.")
	Pragma("noescape")
	g := Load(Param("grids"), GP64())
	values := Load(Param("values"), GP64())
	shifts := Load(Param("shifts"), GP64())
	codes := Load(Param("codes"), GP64())
	sums := Load(Param("sums"), GP64())
	const scale, inverse, zero, whole, offset, common = 0, 128, 256, 384, 512, 640
	half, least, most := YMM(), YMM(), YMM()
	for i, r := range []reg.VecVirtual{half, least, most} {
		VBROADCASTSS(operand.Mem{Base: g, Disp: common + 4*i}, r)
	}
	for i := range 4 {
		of := func(field int) operand.Mem { return operand.Mem{Base: g, Disp: field + 32*i} }
		at := func(base reg.Register) operand.Mem { return operand.Mem{Base: base, Disp: 32 * i} }
		x, to, t, integer, bound := YMM(), YMM(), YMM(), YMM(), YMM()
		VMOVUPS(at(values), x)
		VMOVUPS(at(shifts), to)
		VADDPS(at(sums), to, to)
		VADDPS(to, x, to)
		VSUBPS(of(offset), to, t)
		VMULPS(of(inverse), t, t)
		VSUBPS(half, t, t)
		VMOVUPS(of(whole), integer)
		VMOVUPS(of(zero), bound)
		VSUBPS(integer, bound, bound)
		VADDPS(bound, t, t)
		VSUBPS(integer, least, bound)
		VMAXPS(bound, t, t)
		VSUBPS(integer, most, bound)
		VMINPS(bound, t, t)
		VROUNDPS(operand.Imm(nearestEven), t, t)
		VADDPS(integer, t, t)
		VMOVUPS(t, at(codes))
		VSUBPS(of(zero), t, t)
		VADDPS(half, t, t)
		VMULPS(of(scale), t, t)
		VADDPS(of(offset), t, t)
		VSUBPS(t, x, x)
		VMOVUPS(x, at(values))
		VSUBPS(t, to, to)
		VMOVUPS(to, at(shifts))
	}
	VZEROUPPER()
	RET()
}

func importance() {
	TEXT("importanceBlock", NOSPLIT, "func(w, x *float32, n int, inverse float32)")
	Doc("importanceBlock is importanceGeneric with AVX2 for n values, n a positive multiple of 16.")
	Pragma("noescape")
	w := Load(Param("w"), GP64())
	x := Load(Param("x"), GP64())
	n := Load(Param("n"), GP64())
	inv := YMM()
	broadcast("inverse", inv)
	one := ones()

	Label("values")
	for i := range 2 {
		v := YMM()
		VMOVUPS(operand.Mem{Base: x, Disp: 32 * i}, v)
		VMULPS(v, v, v)
		VMULPS(inv, v, v)
		VADDPS(one, v, v)
		VSQRTPS(v, v)
		VMOVUPS(v, operand.Mem{Base: w, Disp: 32 * i})
	}
	ADDQ(operand.Imm(64), x)
	ADDQ(operand.Imm(64), w)
	SUBQ(operand.Imm(16), n)
	JNE(operand.LabelRef("values"))
	VZEROUPPER()
	RET()
}
