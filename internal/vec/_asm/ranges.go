package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fitRanges keeps the candidates in lanes, as searchScales does: two passes over the values, each
// with two vectors of candidates and three sums.
func fitRanges() {
	TEXT("fitRangesBlock", NOSPLIT, "func(s *float32, unit, base, inverse, most float32, x, w *float32, n int)")
	Doc("fitRangesBlock is fitRangesGeneric with AVX2 for n values, n positive.")
	Pragma("noescape")
	s := Load(Param("s"), GP64())
	x, w, n, passes := GP64(), GP64(), GP64(), GP64()
	at := func(field, v int) operand.Mem { return operand.Mem{Base: s, Disp: 128*field + 32*v} }
	const inverse, cut, product, sum, scores = 0, 1, 2, 3, 4
	const vectors = 2
	zero, most := YMM(), YMM()
	broadcast("most", most)
	zeroed(zero)
	MOVQ(operand.U32(4/vectors), passes)

	Label("pass")
	Load(Param("x"), x)
	Load(Param("w"), w)
	Load(Param("n"), n)
	var a, b, total, inv, shift [vectors]reg.VecVirtual
	unit, base := YMM(), YMM()
	broadcast("unit", unit)
	broadcast("base", base)
	for v := range vectors {
		a[v], b[v], total[v], inv[v], shift[v] = YMM(), YMM(), YMM(), YMM(), YMM()
		VMULPS(at(inverse, v), unit, inv[v])
		VMULPS(base, inv[v], shift[v])
		VSUBPS(at(cut, v), shift[v], shift[v])
		zeroed(a[v], b[v], total[v])
	}

	Label("values")
	value, weight := YMM(), YMM()
	VBROADCASTSS(operand.Mem{Base: x}, value)
	VBROADCASTSS(operand.Mem{Base: w}, weight)
	for v := range vectors {
		q, p := YMM(), YMM()
		VMULPS(inv[v], value, q)
		VADDPS(shift[v], q, q)
		nearestCode(q, zero, most)
		VMULPS(q, weight, p)
		VADDPS(p, total[v], total[v])
		VMULPS(q, p, q)
		VADDPS(q, b[v], b[v])
		VMULPS(value, p, p)
		VADDPS(p, a[v], a[v])
	}
	ADDQ(operand.Imm(4), x)
	ADDQ(operand.Imm(4), w)
	DECQ(n)
	JNE(operand.LabelRef("values"))

	scale := YMM()
	broadcast("inverse", scale)
	for v := range vectors {
		VMOVUPS(a[v], at(product, v))
		VMOVUPS(total[v], at(sum, v))
		VMULPS(total[v], total[v], total[v])
		VMULPS(scale, total[v], total[v])
		VSUBPS(total[v], b[v], b[v])
		score(a[v], b[v], zero, at(scores, v))
	}
	ADDQ(operand.Imm(32*vectors), s)
	DECQ(passes)
	JNE(operand.LabelRef("pass"))
	VZEROUPPER()
	RET()
}

// gridErrors has one vector of candidates and two sums, as scaleErrors.
func gridErrors() {
	TEXT("gridErrorsBlock", NOSPLIT, "func(f *float32, least, most float32, x, w *float32, n int)")
	Doc("gridErrorsBlock is gridErrorsGeneric with AVX2 for n values, n positive.")
	Pragma("noescape")
	f := Load(Param("f"), GP64())
	x := Load(Param("x"), GP64())
	w := Load(Param("w"), GP64())
	n := Load(Param("n"), GP64())
	at := func(field int) operand.Mem { return operand.Mem{Base: f, Disp: 32 * field} }

	scale, offset, lo, hi, inv := YMM(), YMM(), YMM(), YMM(), YMM()
	VMOVUPS(at(0), scale)
	VMOVUPS(at(1), offset)
	broadcast("least", lo)
	broadcast("most", hi)
	one := ones()
	VDIVPS(scale, one, inv)
	sum := [2]reg.VecVirtual{YMM(), YMM()}
	zeroed(sum[0], sum[1])
	add := func(i int) {
		value, q := YMM(), YMM()
		VBROADCASTSS(operand.Mem{Base: x, Disp: 4 * i}, value)
		VSUBPS(offset, value, q)
		VMULPS(inv, q, q)
		nearestCode(q, lo, hi)
		VMULPS(scale, q, q)
		VADDPS(offset, q, q)
		addError(value, q, operand.Mem{Base: w, Disp: 4 * i}, sum[i])
	}
	pairs(x, w, n, sum, add)
	VMOVUPS(sum[0], at(2))
	VZEROUPPER()
	RET()
}
