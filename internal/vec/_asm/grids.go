package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of a GridSearch's and a GridChoice's fields, in vectors of float32 for all lanes.
const (
	gridInverse = iota
	gridStart
	gridA0
	gridA1
	gridB0
	gridB1
	gridB2
	gridScore
	gridA
	gridB
	gridN
)

const (
	gridValues  = 0
	gridWeights = 1
	gridScales  = 2
	gridZeros   = gridScales + gridChoices
	gridChoices = 8
)

func grids() {
	fitTotals()
	for _, v := range []*fitVectors{
		{"Block", "AVX2", 32, YMM, false},
		{"Wide", "AVX-512", 64, ZMM, true},
	} {
		v.searchGrids()
		v.chooseGrids()
	}
}

// fitTotals multiplies by ones.
func fitTotals() {
	TEXT("fitTotalsBlock", NOSPLIT, "func(totals *float32, data *int16, n int)")
	Doc("fitTotalsBlock is fitTotalsGeneric with AVX2 for groups of n values, n a positive multiple of 16.")
	Pragma("noescape")
	totals := Load(Param("totals"), GP64())
	data := Load(Param("data"), GP64())
	n := Load(Param("n"), GP64())
	one := YMM()
	VPCMPEQW(one, one, one)
	VPSRLW(operand.Imm(15), one, one)
	var sums [4]reg.VecVirtual
	for i := range sums {
		sums[i] = YMM()
		VPXOR(sums[i], sums[i], sums[i])
	}
	Label("values")
	for i, s := range sums {
		t := YMM()
		VPMADDWD(operand.Mem{Base: data, Disp: fitVector + 32*i}, one, t)
		VPADDD(t, s, s)
	}
	ADDQ(operand.U32(fitPair), data)
	SUBQ(operand.Imm(2), n)
	JNE(operand.LabelRef("values"))
	for i, s := range sums {
		VCVTDQ2PS(s, s)
		VMOVUPS(s, operand.Mem{Base: totals, Disp: 32 * i})
	}
	VZEROUPPER()
	RET()
}

// all sets a register to a float32.
func (v *fitVectors) all(bits uint32) reg.VecVirtual {
	r, g := v.register(), GP32()
	MOVL(operand.U32(bits), g)
	VMOVD(g, r.AsX())
	VPBROADCASTD(r.AsX(), r)
	return r
}

// twice makes r integers of 16 bits, each twice.
func (v *fitVectors) twice(r, most, least reg.VecVirtual) {
	VMAXPS(least, r, r)
	VMINPS(most, r, r)
	VCVTPS2DQ(r, r)
	VPACKSSDW(r, r, r)
	VPUNPCKLWD(r, r, r)
}

func (v *fitVectors) store(r reg.VecVirtual, m operand.Mem) {
	if v.dot {
		VMOVDQU32(r, m)
	} else {
		VMOVDQU(r, m)
	}
}

func (v *fitVectors) load(m operand.Mem, r reg.VecVirtual) {
	if v.dot {
		VMOVDQU32(m, r)
	} else {
		VMOVDQU(m, r)
	}
}

// gridMemory is what does not fit into registers.
type gridMemory struct {
	c, d  func(i int) operand.Mem
	shift operand.Mem // of 16 bytes
}

func (v *fitVectors) gridMemory() gridMemory {
	local := AllocLocal(2*fitQuad*v.bytes + 16)
	m := gridMemory{
		c:     func(i int) operand.Mem { return local.Offset(v.bytes * i) },
		d:     func(i int) operand.Mem { return local.Offset(v.bytes * (fitQuad + i)) },
		shift: local.Offset(2 * fitQuad * v.bytes),
	}
	shift := Load(Param("shift"), GP64())
	MOVQ(shift, m.shift)
	return m
}

// gridSums sets a, b and s to the sums A, B and N of four grids over the n values at data, as
// float32.
func (v *fitVectors) gridSums(a, b, s *[fitQuad]reg.VecVirtual, m gridMemory, data, n reg.Register) {
	at, left := GP64(), GP64()
	MOVQ(data, at)
	MOVQ(n, left)
	for i := range fitQuad {
		a[i], b[i], s[i] = v.register(), v.register(), v.register()
		for _, r := range []reg.VecVirtual{a[i], b[i], s[i]} {
			v.clear(r)
		}
	}
	var c, d [fitQuad]operand.Op
	for i := range fitQuad {
		c[i], d[i] = m.c(i), m.d(i)
		if v.dot { // enough registers
			rc, rd := v.register(), v.register()
			v.load(m.c(i), rc)
			v.load(m.d(i), rd)
			c[i], d[i] = rc, rd
		}
	}
	var product, weight operand.Op = operand.Mem{Base: at, Disp: fitVector}, operand.Mem{Base: at, Disp: 2 * fitVector}
	Label("values")
	x := v.register()
	v.load(operand.Mem{Base: at}, x)
	if v.dot {
		rp, rw := v.register(), v.register()
		v.load(product.(operand.Mem), rp)
		v.load(weight.(operand.Mem), rw)
		product, weight = rp, rw
	}
	for i := range fitQuad {
		q := v.register()
		VPMULHRSW(c[i], x, q)
		VPADDSW(d[i], q, q)
		VPADDSW(q, q, q)
		VPADDSW(q, q, q)
		VPSRAW(m.shift, q, q)
		v.add(product, q, a[i])
		v.add(weight, q, s[i])
		VPMULLW(q, q, q)
		v.add(weight, q, b[i])
	}
	ADDQ(operand.U32(fitPair), at)
	SUBQ(operand.Imm(2), left)
	JNE(operand.LabelRef("values"))
	for i := range fitQuad {
		VCVTDQ2PS(a[i], a[i])
		VCVTDQ2PS(b[i], b[i])
		VCVTDQ2PS(s[i], s[i])
	}
}

// searchGrids goes through the candidates in fours. With AVX2 it runs for each half of the lanes.
func (v *fitVectors) searchGrids() {
	TEXT("searchGrids"+v.suffix, NOSPLIT, "func(lanes, list *float32, data *int16, n, fours, shift int)")
	Doc("searchGrids"+v.suffix+" is searchGridsGeneric with "+v.with+" for groups of n values, n a positive multiple of 16, and",
		"four times so many candidates. lanes is a GridSearch.")
	Pragma("noescape")
	lanes := Load(Param("lanes"), GP64())
	data := Load(Param("data"), GP64())
	n := Load(Param("n"), GP64())
	m := v.gridMemory()
	field := func(i int) operand.Mem { return operand.Mem{Base: lanes, Disp: 64 * i} }
	parts, list, fours := GP64(), GP64(), GP64()
	MOVQ(operand.U32(fitVector/v.bytes), parts)

	Label("part")
	Load(Param("list"), list)
	Load(Param("fours"), fours)

	Label("four")
	most, least := v.all(0x46fffe00), v.all(0xc6fffe00)
	for i := range fitQuad {
		c, d := v.register(), v.register()
		VBROADCASTSS(operand.Mem{Base: list, Disp: 8 * i}, c)
		VBROADCASTSS(operand.Mem{Base: list, Disp: 8*i + 4}, d)
		VMULPS(field(gridInverse), c, c)
		VADDPS(field(gridStart), d, d)
		v.twice(c, most, least)
		v.twice(d, most, least)
		v.store(c, m.c(i))
		v.store(d, m.d(i))
	}
	var a, b, s [fitQuad]reg.VecVirtual
	v.gridSums(&a, &b, &s, m, data, n)
	for i := range fitQuad {
		t, u := v.register(), v.register()
		VMULPS(field(gridA1), s[i], t)
		VADDPS(field(gridA0), a[i], a[i])
		VADDPS(t, a[i], a[i])
		VMULPS(field(gridB2), s[i], t)
		VADDPS(field(gridB1), t, t)
		VMULPS(t, s[i], t)
		VADDPS(field(gridB0), b[i], b[i])
		VADDPS(t, b[i], b[i])
		g := GP32()
		MOVL(operand.U32(0x43800000), g) // 256
		VMOVD(g, t.AsX())
		VPBROADCASTD(t.AsX(), t)
		VMAXPS(t, b[i], b[i]) // gives the 256 for a NaN
		VMULPS(a[i], a[i], t)
		VDIVPS(b[i], t, t)
		v.keep(t, u, field(gridScore), []reg.VecVirtual{a[i], b[i], s[i], t}, []operand.Mem{field(gridA), field(gridB), field(gridN), field(gridScore)})
	}
	ADDQ(operand.Imm(8*fitQuad), list)
	DECQ(fours)
	JNE(operand.LabelRef("four"))
	ADDQ(operand.U32(uint32(v.bytes)), lanes)
	ADDQ(operand.U32(uint32(v.bytes)), data)
	DECQ(parts)
	JNE(operand.LabelRef("part"))
	VZEROUPPER()
	RET()
}

// keep stores the registers in the lanes where score is above the one at best; t is overwritten.
func (v *fitVectors) keep(score, t reg.VecVirtual, best operand.Mem, registers []reg.VecVirtual, to []operand.Mem) {
	const greater = 0x1e // ordered, not signalling
	VMOVUPS(best, t)
	if v.dot {
		k := K()
		VCMPPS(operand.Imm(greater), t, score, k)
		for i, r := range registers {
			VMOVUPS(r, k, to[i])
		}
		return
	}
	mask := v.register()
	VCMPPS(operand.Imm(greater), t, score, mask)
	for i, r := range registers {
		VMOVUPS(to[i], t)
		VBLENDVPS(mask, r, t, t)
		VMOVUPS(t, to[i])
	}
}

// chooseGrids goes through the grids in fours.
func (v *fitVectors) chooseGrids() {
	TEXT("chooseGrids"+v.suffix, NOSPLIT, "func(choice *int32, lanes *float32, data *int16, n, count, shift int, power float32)")
	Doc("chooseGrids"+v.suffix+" is chooseGridsGeneric with "+v.with+" for groups of n values, n a positive multiple of 16.",
		"lanes is a GridChoice.")
	Pragma("noescape")
	choice := Load(Param("choice"), GP64())
	lanes := Load(Param("lanes"), GP64())
	data := Load(Param("data"), GP64())
	n := Load(Param("n"), GP64())
	m := v.gridMemory()
	best := AllocLocal(v.bytes)
	parts, from, number := GP64(), GP64(), GP32()
	count := Load(Param("count"), GP64())
	MOVQ(operand.U32(fitVector/v.bytes), parts)
	scale := func(i int) operand.Mem { return operand.Mem{Base: from, Disp: 64 * (gridScales + i)} }
	zero := func(i int) operand.Mem { return operand.Mem{Base: from, Disp: 64 * (gridZeros + i)} }

	Label("part")
	v.store(v.all(0xff800000), best) // -Inf
	none := v.register()
	v.clear(none)
	v.store(none, operand.Mem{Base: choice})
	MOVQ(lanes, from)
	XORL(number, number)

	Label("four")
	most, least := v.all(0x46fffe00), v.all(0xc6fffe00)
	power, half := v.register(), v.register()
	broadcast("power", power)
	VMULPS(v.all(0x3f000000), power, half)
	for i := range fitQuad {
		c, d := v.register(), v.register()
		VDIVPS(scale(i), power, c)
		VMULPS(zero(i), power, d)
		VADDPS(half, d, d)
		v.twice(c, most, least)
		v.twice(d, most, least)
		v.store(c, m.c(i))
		v.store(d, m.d(i))
	}
	var a, b, s [fitQuad]reg.VecVirtual
	v.gridSums(&a, &b, &s, m, data, n)
	for i := range fitQuad {
		z, t := v.register(), v.register()
		VMOVUPS(zero(i), z)
		VMULPS(operand.Mem{Base: lanes, Disp: 64 * gridValues}, z, t)
		VSUBPS(t, a[i], a[i])
		VADDPS(a[i], a[i], a[i])
		VADDPS(s[i], s[i], s[i])
		VMULPS(z, s[i], s[i])
		VSUBPS(s[i], b[i], b[i])
		VMULPS(z, z, z)
		VMULPS(operand.Mem{Base: lanes, Disp: 64 * gridWeights}, z, z)
		VADDPS(z, b[i], b[i])
		VMOVUPS(scale(i), t)
		VMULPS(t, b[i], b[i])
		VSUBPS(b[i], a[i], a[i])
		VMULPS(t, a[i], a[i])
		VMOVD(number, z.AsX())
		VPBROADCASTD(z.AsX(), z)
		INCL(number)
		v.keep(a[i], t, best, []reg.VecVirtual{z, a[i]}, []operand.Mem{{Base: choice}, best})
	}
	ADDQ(operand.U32(64*fitQuad), from)
	CMPL(number, count.(reg.GPVirtual).As32())
	JNE(operand.LabelRef("four"))
	ADDQ(operand.U32(uint32(v.bytes)), choice)
	ADDQ(operand.U32(uint32(v.bytes)), lanes)
	ADDQ(operand.U32(uint32(v.bytes)), data)
	DECQ(parts)
	JNE(operand.LabelRef("part"))
	VZEROUPPER()
	RET()
}
