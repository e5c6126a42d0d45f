package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Sizes in bytes of a Fit's data for a pair of values.
const (
	fitVector = 64 // of int16, two for each lane
	fitPair   = 3 * fitVector
	fitQuad   = 4 // candidates whose sums are in registers
)

// fitVectors is a set of vectors of a Fit's lanes.
type fitVectors struct {
	suffix, with string
	bytes        int // of a vector
	register     func() reg.VecVirtual
	dot          bool // VPDPWSSD
}

func fits() {
	fitLoad()
	for _, v := range []*fitVectors{
		{"Block", "AVX2", 32, YMM, false},
		{"Wide", "AVX-512", 64, ZMM, true},
	} {
		v.search()
		v.choose()
	}
}

// fitLoad has 8 groups in registers, 16 values of each: as 8 pairs of int16. The columns of this
// matrix of pairs are vectors of data. Packing puts columns 2 and 3 after 4 and 5, which changes no
// sum.
func fitLoad() {
	TEXT("fitLoadBlock", NOSPLIT, "func(data *int16, x, w, units *float32, n int)")
	Doc("fitLoadBlock is fitLoadGeneric with AVX2 for groups of n values, n a positive multiple of 16; data has the pairs",
		"of values in another order. units are Unit, Weight and Offset of a Fit.")
	Pragma("noescape")
	data := Load(Param("data"), GP64())
	half, n, x := GP64(), GP64(), GP64()
	step, eight := GP64(), GP64()
	Load(Param("n"), step)
	SHLQ(operand.Imm(2), step) // bytes of a group
	LEAQ(operand.Mem{Base: step, Index: step, Scale: 2}, eight)
	LEAQ(operand.Mem{Base: eight, Index: step, Scale: 4}, eight) // 7 groups
	XORQ(half, half)

	Label("half")
	Load(Param("n"), n)
	offset := GP64() // of the values in their groups
	XORQ(offset, offset)
	to := GP64()
	MOVQ(data, to)

	Label("values")
	for i, param := range []string{"x", "w"} {
		units := Load(Param("units"), GP64())
		ADDQ(half, units)
		Load(Param(param), x)
		ADDQ(offset, x)
		TESTQ(half, half)
		JEQ(operand.LabelRef(fmt.Sprintf("first%d", i)))
		ADDQ(eight, x)
		ADDQ(step, x)
		Label(fmt.Sprintf("first%d", i))
		var r [8]reg.VecVirtual
		for g := range r {
			unit, high := YMM(), YMM()
			r[g] = YMM()
			VBROADCASTSS(operand.Mem{Base: units, Disp: 64*i + 4*g}, unit)
			VMULPS(operand.Mem{Base: x}, unit, r[g])
			VMULPS(operand.Mem{Base: x, Disp: 32}, unit, high)
			if i == 0 {
				VBROADCASTSS(operand.Mem{Base: units, Disp: 128 + 4*g}, unit)
				VADDPS(unit, r[g], r[g])
				VADDPS(unit, high, high)
			}
			VCVTPS2DQ(r[g], r[g])
			VCVTPS2DQ(high, high)
			VPACKSSDW(high, r[g], r[g])
			if g < 7 {
				ADDQ(step, x)
			}
		}
		for c, column := range transposed(r) {
			at := operand.Mem{Base: to, Disp: fitPair * c}
			VMOVDQU(column, at.Offset(2*fitVector*i))
			if i == 1 {
				VPMULHRSW(at, column, column)
				VMOVDQU(column, at.Offset(fitVector))
			}
		}
	}
	ADDQ(operand.U32(8*fitPair), to)
	ADDQ(operand.Imm(64), offset)
	SUBQ(operand.Imm(16), n)
	JNE(operand.LabelRef("values"))
	ADDQ(operand.Imm(32), data)
	ADDQ(operand.Imm(32), half)
	CMPQ(half, operand.Imm(64))
	JNE(operand.LabelRef("half"))
	VZEROUPPER()
	RET()
}

// transposed returns the columns of a matrix of 8 x 8 dwords.
func transposed(r [8]reg.VecVirtual) (columns [8]reg.VecVirtual) {
	var s [8]reg.VecVirtual // columns of the upper and the lower four rows, c and c+4
	for i := 0; i < 8; i += 4 {
		var t [4]reg.VecVirtual
		for j := range t {
			t[j] = YMM()
		}
		VPUNPCKLDQ(r[i+1], r[i], t[0])
		VPUNPCKHDQ(r[i+1], r[i], t[1])
		VPUNPCKLDQ(r[i+3], r[i+2], t[2])
		VPUNPCKHDQ(r[i+3], r[i+2], t[3])
		for j := range 4 {
			s[i+j] = YMM()
		}
		VPUNPCKLQDQ(t[2], t[0], s[i])
		VPUNPCKHQDQ(t[2], t[0], s[i+1])
		VPUNPCKLQDQ(t[3], t[1], s[i+2])
		VPUNPCKHQDQ(t[3], t[1], s[i+3])
	}
	for c := range 4 {
		columns[c], columns[c+4] = YMM(), YMM()
		VPERM2I128(operand.Imm(0x20), s[c+4], s[c], columns[c])
		VPERM2I128(operand.Imm(0x31), s[c+4], s[c], columns[c+4])
	}
	return columns
}

// limits are the registers of a Fit's limits.
type fitLimits struct{ unit, least, most, half, shift reg.VecVirtual }

func (v *fitVectors) limits() fitLimits {
	p := Load(Param("limits"), GP64())
	var l fitLimits
	list := []*reg.VecVirtual{&l.unit, &l.least, &l.most}
	if v.dot {
		list = []*reg.VecVirtual{nil, &l.least, &l.most, &l.half, &l.shift}
	}
	for i, r := range list {
		if r != nil {
			*r = v.register()
			VPBROADCASTD(operand.Mem{Base: p, Disp: 4 * i}, *r)
		}
	}
	return l
}

// sums sets a and b to the sums of four candidates c over the n values at data, as float32.
func (v *fitVectors) sums(label string, a, b *[fitQuad]reg.VecVirtual, c func(i int) operand.Mem, l fitLimits, data, n reg.Register) {
	at, left := GP64(), GP64()
	MOVQ(data, at)
	MOVQ(n, left)
	for i := range fitQuad {
		a[i], b[i] = v.register(), v.register()
		for _, r := range []reg.VecVirtual{a[i], b[i]} {
			if v.dot {
				VPXORD(r, r, r)
			} else {
				VPXOR(r, r, r)
			}
		}
	}
	Label(label)
	// With AVX2, values stay in memory: there are 16 registers.
	var x, product, weight operand.Op = operand.Mem{Base: at}, operand.Mem{Base: at, Disp: fitVector}, operand.Mem{Base: at, Disp: 2 * fitVector}
	if v.dot {
		for _, m := range []*operand.Op{&x, &product, &weight} {
			r := v.register()
			v.load((*m).(operand.Mem), r)
			*m = r
		}
	}
	for i := range fitQuad {
		q := v.register()
		if v.dot { // multiplications have half of the execution units
			VPMULHRSW(c(i), x, q)
			VPADDSW(l.half, q, q)
			VPSRAVW(l.shift, q, q)
		} else {
			v.load(c(i), q)
			VPMULHRSW(x, q, q)
			VPMULHRSW(l.unit, q, q)
		}
		VPMAXSW(l.least, q, q)
		VPMINSW(l.most, q, q)
		v.add(product, q, a[i])
		VPMULLW(q, q, q)
		v.add(weight, q, b[i])
	}
	ADDQ(operand.U32(fitPair), at)
	SUBQ(operand.Imm(2), left)
	JNE(operand.LabelRef(label))
	for i := range fitQuad {
		VCVTDQ2PS(a[i], a[i])
		VCVTDQ2PS(b[i], b[i])
	}
}

// add adds the products of q and the values m to sum, pair by pair.
func (v *fitVectors) add(m operand.Op, q, sum reg.VecVirtual) {
	if v.dot {
		VPDPWSSD(m, q, sum)
		return
	}
	t := v.register()
	VPMADDWD(m, q, t)
	VPADDD(t, sum, sum)
}

// better replaces pairs of registers, the present and the new one, in the lanes where score is
// above best.
func (v *fitVectors) better(score, best reg.VecVirtual, pairs ...[2]reg.VecVirtual) {
	const greater = 0x1e // ordered, not signalling
	if v.dot {
		k := K()
		VCMPPS(operand.Imm(greater), best, score, k)
		for _, p := range pairs {
			VMOVAPS(p[1], k, p[0])
		}
		return
	}
	mask := v.register()
	VCMPPS(operand.Imm(greater), best, score, mask)
	for _, p := range pairs {
		VBLENDVPS(mask, p[1], p[0], p[0])
	}
}

func (v *fitVectors) clear(r reg.VecVirtual) {
	if v.dot {
		VPXORD(r, r, r)
	} else {
		VPXOR(r, r, r)
	}
}

// one returns a register of 1.0.
func (v *fitVectors) one() reg.VecVirtual {
	r, g := v.register(), GP32()
	MOVL(operand.U32(0x3f800000), g)
	VMOVD(g, r.AsX())
	VPBROADCASTD(r.AsX(), r)
	return r
}

// search goes through the starts in fours. With AVX2 it runs for each half of the lanes.
func (v *fitVectors) search() {
	TEXT("fitSearch"+v.suffix, NOSPLIT, "func(scale *float32, data *int16, starts, limits *uint32, n int)")
	Doc("fitSearch" + v.suffix + " is fitSearchGeneric with " + v.with + " for groups of n values, n a positive multiple of 16.")
	Pragma("noescape")
	scale := Load(Param("scale"), GP64())
	data := Load(Param("data"), GP64())
	n := Load(Param("n"), GP64())
	limits := v.limits()
	parts := GP64()
	MOVQ(operand.U32(fitVector/v.bytes), parts)
	starts, fours := GP64(), GP64()

	Label("part")
	best, bestA := v.register(), v.register()
	v.clear(best)
	v.clear(bestA)
	bestB := v.one()
	Load(Param("starts"), starts)
	MOVQ(operand.U32(16/fitQuad), fours)

	Label("four")
	var a, b [fitQuad]reg.VecVirtual
	v.sums("values", &a, &b, func(i int) operand.Mem { return operand.Mem{Base: starts, Disp: fitVector * i} }, limits, data, n)
	for i := range fitQuad {
		score := v.register()
		VMULPS(a[i], a[i], score)
		VDIVPS(b[i], score, score)
		v.better(score, best, [2]reg.VecVirtual{bestA, a[i]}, [2]reg.VecVirtual{bestB, b[i]}, [2]reg.VecVirtual{best, score})
	}
	ADDQ(operand.U32(fitQuad*fitVector), starts)
	DECQ(fours)
	JNE(operand.LabelRef("four"))
	VDIVPS(bestB, bestA, bestA)
	VMOVUPS(bestA, operand.Mem{Base: scale})
	ADDQ(operand.U32(uint32(v.bytes)), scale)
	ADDQ(operand.U32(uint32(v.bytes)), data)
	// The starts are the same for all lanes, so they need not move.
	DECQ(parts)
	JNE(operand.LabelRef("part"))
	VZEROUPPER()
	RET()
}

func (v *fitVectors) choose() {
	TEXT("fitChoose"+v.suffix, NOSPLIT, "func(choice *int32, stored *float32, data *int16, limits *uint32, n int, power float32)")
	Doc("fitChoose" + v.suffix + " is fitChooseGeneric with " + v.with + " for groups of n values, n a positive multiple of 16.")
	Pragma("noescape")
	choice := Load(Param("choice"), GP64())
	stored := Load(Param("stored"), GP64())
	data := Load(Param("data"), GP64())
	n := Load(Param("n"), GP64())
	limits := v.limits()
	parts := GP64()
	MOVQ(operand.U32(fitVector/v.bytes), parts)
	local := AllocLocal(fitQuad * v.bytes)
	c := func(i int) operand.Mem { return local.Offset(v.bytes * i) }
	at := func(i int) operand.Mem { return operand.Mem{Base: stored, Disp: fitVector * i} }

	Label("part")
	most, least, power := v.register(), v.register(), v.register()
	g := GP32()
	MOVL(operand.U32(0x46fffe00), g) // 32767
	VMOVD(g, most.AsX())
	VPBROADCASTD(most.AsX(), most)
	MOVL(operand.U32(0xc6fffe00), g)
	VMOVD(g, least.AsX())
	VPBROADCASTD(least.AsX(), least)
	broadcast("power", power)
	for i := range fitQuad {
		inverse, high := v.register(), v.register()
		VDIVPS(at(i), power, inverse)
		VMAXPS(least, inverse, inverse)
		VMINPS(most, inverse, inverse)
		VCVTPS2DQ(inverse, inverse)
		VPSLLD(operand.Imm(16), inverse, high)
		if v.dot {
			VPSRLD(operand.Imm(16), high, inverse)
			VPORD(high, inverse, inverse)
			VMOVDQU32(inverse, c(i))
		} else {
			VPBLENDW(operand.Imm(0b10101010), high, inverse, inverse)
			VMOVDQU(inverse, c(i))
		}
	}
	var a, b [fitQuad]reg.VecVirtual
	v.sums("values", &a, &b, c, limits, data, n)
	best, index, this := v.register(), v.register(), v.register()
	v.clear(index)
	for i := range fitQuad {
		gain := v.register()
		if i == 0 {
			gain = best
		}
		scale := v.register()
		VMOVUPS(at(i), scale)
		VMULPS(scale, b[i], b[i])
		VADDPS(a[i], a[i], a[i])
		VSUBPS(b[i], a[i], gain)
		VMULPS(scale, gain, gain)
		if i > 0 {
			number := GP32()
			MOVL(operand.U32(uint32(i)), number)
			VMOVD(number, this.AsX())
			VPBROADCASTD(this.AsX(), this)
			v.better(gain, best, [2]reg.VecVirtual{index, this}, [2]reg.VecVirtual{best, gain})
		}
	}
	VMOVUPS(index, operand.Mem{Base: choice})
	ADDQ(operand.U32(uint32(v.bytes)), choice)
	ADDQ(operand.U32(uint32(v.bytes)), stored)
	ADDQ(operand.U32(uint32(v.bytes)), data)
	DECQ(parts)
	JNE(operand.LabelRef("part"))
	VZEROUPPER()
	RET()
}
