package main

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// units are the products of ggml's blocks with 8 or 16 rows of activations (Step.Unit), arranged
// as in tall. The sum of a unit of columns is two words. A VPMADDWD adds them and multiplies with
// the sub-scale. VPMADDUBSW needs unsigned codes, so sums of signed codes begin with Starts. Words
// may wrap on the way: at the end they hold the sum of the signed codes.
type units struct {
	*tall
	size    int           // of a unit, in chunks of 4 columns
	starts  reg.GPVirtual // of the current unit, or nil
	each    operand.Mem   // units of a group
	rest    reg.GPVirtual // subs: groups left in the block
	factors reg.GPVirtual // subs: of the current group
}

func productUnits2(r result, size, vectors int) {
	s := &units{tall: beginTall(r, fmt.Sprint("Unit", 4*size), vectors, vectors), size: size, starts: GP64(), each: AllocLocal(8)}
	MOVQ(s.arg("Starts"), s.starts)
	MOVLQSX(operand.Mem{Base: s.steps}, s.left) // all groups are as long
	switch size {
	case 8:
		SHRQ(operand.U8(1), s.left)
	case 2:
		SHLQ(operand.U8(1), s.left)
	}
	MOVQ(s.left, s.each)
	switch r {
	case blocks:
		s.point("ActScales")
	case blocksMin:
		s.point("ActScales", "Mins", "ActSums")
	case subs:
		s.point("ActScales", "Mins", "SubMins", "SumPairs")
		s.rest, s.factors = GP64(), GP64()
		MOVQ(s.arg("Factors"), s.factors)
		MOVQ(s.arg("Each"), s.rest)
		s.clear()
	}
	Label("group")
	MOVQ(s.each, s.left)
	if r == subs {
		s.subGroup()
	} else {
		s.blockGroup()
	}
	DECQ(s.groups)
	JNE(operand.LabelRef("group"))
	s.outputs()
	VZEROUPPER()
	RET()
}

// productWords2 emits the products of codes of 8 bits with 8 or 16 rows of activations, as words
// (Step.Words). The words of ggml's blocks were multiplied with their sub-scales. A sum is then a
// dword until the end of a group, or of a block with sub-scales.
func productWords2(r result, vectors int) {
	s := &units{tall: beginTall(r, "Words", vectors, 0)}
	s.code, s.column = GP64(), GP64()
	const columns = 8 // of a turn of the loop
	if r >= blocks {
		s.point("ActScales")
	}
	Label("group")
	turns := AllocLocal(8)
	MOVLQSX(operand.Mem{Base: s.steps}, s.left) // of blocks, all groups are as long
	ADDQ(s.left, s.left)
	if r == subs {
		IMULQ(s.arg("Each"), s.left)
	}
	MOVQ(s.left, turns)
	var as reg.Register
	if r >= blocks {
		as = s.following("ActScales", 4*s.mr).Base
	}
	s.passes(func(pass int) {
		label := fmt.Sprint("turn", pass)
		MOVQ(turns, s.left)
		MOVQ(s.codes, s.code)
		MOVQ(s.acts, s.column)
		s.eachSum(func(_, _ int, sum reg.VecVirtual) { VPXOR(sum, sum, sum) })
		Label(label)
		for i := range columns / 2 {
			s.addWords(pass, i)
		}
		ADDQ(operand.U32(2*columns*s.nr), s.code)
		ADDQ(operand.U32(columns*s.mr), s.column)
		DECQ(s.left)
		JNE(operand.LabelRef(label))
		if r < blocks {
			s.flush(pass, "words")
		} else {
			s.finish(pass, as, s.scales, VFMADD213PS, nil)
		}
	})
	MOVQ(s.code, s.codes)
	MOVQ(s.column, s.acts)
	if r < blocks {
		s.next()
		s.end()
		return
	}
	ADDQ(operand.U32(4*s.nr), s.scales)
	if r == subs {
		SUBQ(s.arg("Each"), s.groups)
	} else {
		DECQ(s.groups)
	}
	JNE(operand.LabelRef("group"))
	s.outputs()
	VZEROUPPER()
	RET()
}

// addWords adds 2 columns, the i-th ones, to the sums.
func (s *units) addWords(pass, i int) {
	columns := emit.AVX2.Vectors(s.vectors)
	for v := range columns {
		VPMOVSXBW(operand.Mem{Base: s.column, Disp: 2*s.mr*i + 16*v}, columns[v])
	}
	for row, sums := range s.sums {
		code := YMM()
		VPBROADCASTD(s.perRowOf(s.code, pass, row).Offset(4*s.nr*i), code)
		for v, sum := range sums {
			p := code
			if v < s.vectors-1 {
				p = YMM()
			}
			VPMADDWD(columns[v], code, p)
			VPADDD(p, sum, sum)
		}
	}
}

// widen emits Set.Widen: it transposes 8 rows of 4 pairs of columns.
func widen() {
	emit.Func("widenAVX2", "func(dst *int16, codes *byte, groups, chunks int, factors *int32)", "widenAVX2 is Set.Widen for at least one group.")
	dst, codes, groups := Load(Param("dst"), GP64()), Load(Param("codes"), GP64()), Load(Param("groups"), GP64())
	factors, left := Load(Param("factors"), GP64()), GP64()
	var pairs [32]uint8 // of columns, of 2 rows in turn
	for i := range pairs {
		pair, row := i%16/4, i/2%2
		pairs[i] = uint8(8*row + 2*pair + i%2)
	}
	order := emit.AVX2.Load(emit.Const(pairs[:]...))
	factor := emit.AVX2.Load(emit.AVX2.All32(0x00010001))
	Label("group")
	TESTQ(factors, factors)
	JE(operand.LabelRef("chunks"))
	high := YMM()
	VMOVDQU(operand.Mem{Base: factors}, factor)
	VPSLLD(operand.U8(16), factor, high)
	VPBLENDW(operand.U8(0b10101010), high, factor, factor)
	ADDQ(operand.U32(32), factors)
	Label("chunks")
	MOVQ(param("chunks"), left)
	Label("chunk")
	var rows [4]reg.VecVirtual // 2 rows each
	for i := range 2 {
		x := emit.AVX2.Load(operand.Mem{Base: codes, Disp: 32 * i})
		VPSHUFB(order, x, x)
		rows[2*i], rows[2*i+1] = x, YMM()
		VEXTRACTI128(operand.U8(1), x, rows[2*i+1].AsX())
	}
	for pair, x := range transpose(rows[0], rows[1], rows[2], rows[3]) {
		VPMOVSXBW(x.AsX(), x)
		VPMULLW(factor, x, x)
		VMOVDQU(x, operand.Mem{Base: dst, Disp: 32 * pair})
	}
	ADDQ(operand.U32(64), codes)
	ADDQ(operand.U32(128), dst)
	DECQ(left)
	JNE(operand.LabelRef("chunk"))
	DECQ(groups)
	JNE(operand.LabelRef("group"))
	VZEROUPPER()
	RET()
}

// passes emits f for every pass.
func (s *units) passes(f func(pass int)) {
	for pass := range s.vectors {
		f(pass)
	}
}

// unit computes the words of a pass.
func (s *units) unit(way string, pass int) {
	for i := range s.size {
		s.add(s.codes, s.acts, pass, i, i == 0)
	}
	done := fmt.Sprint("started", way, pass)
	TESTQ(s.starts, s.starts)
	JE(operand.LabelRef(done))
	first := emit.AVX2.Vectors(s.vectors)
	for v, x := range first {
		VMOVDQU(operand.Mem{Base: s.starts, Disp: 32 * v}, x)
	}
	s.eachSum(func(_, v int, sum reg.VecVirtual) { VPADDW(first[v], sum, sum) })
	Label(done)
}

// advance goes on to the next unit.
func (s *units) advance(way string) {
	ADDQ(operand.U32(4*s.size*s.nr), s.codes)
	ADDQ(operand.U32(4*s.size*s.mr), s.acts)
	done := "advanced" + way
	TESTQ(s.starts, s.starts)
	JE(operand.LabelRef(done))
	ADDQ(operand.U32(4*s.mr), s.starts)
	Label(done)
}

// clear sets the sums on the stack to 0.
func (s *units) clear() {
	zero := YMM()
	VPXOR(zero, zero, zero)
	for i := range s.vectors * tallSums {
		VMOVDQA(zero, s.t.Offset(32*i))
	}
}

// accumulate adds the sums of a pass to those on the stack.
func (s *units) accumulate(pass int) {
	s.eachSum(func(row, v int, sum reg.VecVirtual) {
		at := s.at(s.t, pass, row, v)
		VPADDD(at, sum, sum)
		VMOVDQA(sum, at)
	})
}

// load loads the sums of a pass from the stack.
func (s *units) load(pass int) {
	s.eachSum(func(row, v int, sum reg.VecVirtual) { VMOVDQA(s.at(s.t, pass, row, v), sum) })
}

// perRowOf is the place of a number of a row of the panel.
func (s *units) perRowOf(base reg.Register, pass, row int) operand.Mem {
	return operand.Mem{Base: base, Disp: 4 * (pass*s.rows + row)}
}

// finish adds the sums of a pass, times scales of the activations and of the rows, to the outputs.
// then emits what follows for an output before it is stored.
func (s *units) finish(pass int, as, scales reg.Register, fma func(...operand.Op), then func(row, v int, f reg.VecVirtual)) {
	for row, sums := range s.sums {
		scale := YMM()
		VBROADCASTSS(s.perRowOf(scales, pass, row), scale)
		for v, sum := range sums {
			f, x := s.at(s.f, pass, row, v), YMM()
			VMULPS(operand.Mem{Base: as, Disp: 32 * v}, scale, x)
			VCVTDQ2PS(sum, sum)
			fma(f, x, sum) // sum = f + sum x
			if then != nil {
				then(row, v, sum)
			}
			VMOVAPS(sum, f)
		}
	}
}

// blockGroup is a group of Step.Blocks or BlocksMin. The sums of a single unit stay in registers.
func (s *units) blockGroup() {
	add := func() { s.eachSum(func(_, _ int, sum reg.VecVirtual) { VPMADDWD(emit.Ones(), sum, sum) }) }
	as := s.following("ActScales", 4*s.mr).Base
	var mins, asums operand.Mem
	if s.result == blocksMin {
		mins, asums = s.following("Mins", 4*s.nr), s.following("ActSums", 4*s.mr)
	}
	finish := func(pass int) {
		var minimum reg.VecVirtual
		s.finish(pass, as, s.scales, VFMADD213PS, func(row, v int, f reg.VecVirtual) {
			if s.result != blocksMin {
				return
			}
			if v == 0 {
				minimum = YMM()
				VBROADCASTSS(s.perRowOf(mins.Base, pass, row), minimum)
			}
			VFMADD231PS(asums.Offset(32*v), minimum, f)
		})
	}
	CMPQ(s.left, operand.U8(1))
	JNE(operand.LabelRef("long"))
	s.passes(func(pass int) {
		s.unit("short", pass)
		add()
		finish(pass)
	})
	s.advance("short")
	JMP(operand.LabelRef("next"))
	Label("long")
	s.clear()
	Label("unit")
	s.passes(func(pass int) {
		s.unit("long", pass)
		add()
		s.accumulate(pass)
	})
	s.advance("long")
	DECQ(s.left)
	JNE(operand.LabelRef("unit"))
	s.passes(func(pass int) {
		s.load(pass)
		finish(pass)
	})
	Label("next")
	ADDQ(operand.U32(4*s.nr), s.scales)
}

// subGroup is a group of Step.Subs.
func (s *units) subGroup() {
	Label("unit")
	s.passes(func(pass int) {
		s.unit("sub", pass)
		for row, sums := range s.sums {
			factor := YMM()
			VPBROADCASTW(s.perRowOf(s.factors, pass, row), factor)
			for _, sum := range sums {
				VPMADDWD(factor, sum, sum)
			}
		}
		s.accumulate(pass)
	})
	s.advance("sub")
	DECQ(s.left)
	JNE(operand.LabelRef("unit"))
	ADDQ(operand.U32(4*s.nr), s.factors)
	DECQ(s.rest)
	JNE(operand.LabelRef("next"))
	s.endBlock()
	MOVQ(s.arg("Each"), s.rest)
	s.clear()
	Label("next")
}

// endBlock adds a block to the outputs.
func (s *units) endBlock() {
	as := s.following("ActScales", 4*s.mr).Base
	s.passes(func(pass int) {
		s.load(pass)
		s.finish(pass, as, s.scales, VFMADD213PS, nil)
	})
	ADDQ(operand.U32(4*s.nr), s.scales)
	CMPQ(s.arg("SubMins"), operand.U8(0))
	JE(operand.LabelRef("block"))
	mins := s.following("Mins", 4*s.nr).Base
	s.passes(func(pass int) {
		label, pairs, subMins, sums := fmt.Sprint("pair", pass), GP64(), GP64(), GP64()
		MOVQ(s.arg("Each"), pairs)
		SHRQ(operand.U8(1), pairs)
		MOVQ(s.slots["SubMins"], subMins)
		MOVQ(s.slots["SumPairs"], sums)
		s.eachSum(func(_, _ int, sum reg.VecVirtual) { VPXOR(sum, sum, sum) })
		Label(label)
		for row, totals := range s.sums {
			pair, second := YMM(), YMM()
			VPBROADCASTW(s.perRowOf(subMins, pass, row), pair)
			VPBROADCASTW(s.perRowOf(subMins, pass, row).Offset(4*s.nr), second)
			VPBLENDW(operand.U8(0b10101010), second, pair, pair)
			for v, total := range totals {
				x := YMM()
				VPMADDWD(operand.Mem{Base: sums, Disp: 32 * v}, pair, x)
				VPADDD(x, total, total)
			}
		}
		ADDQ(operand.U32(2*4*s.nr), subMins)
		ADDQ(operand.U32(4*s.mr), sums)
		DECQ(pairs)
		JNE(operand.LabelRef(label))
		if pass == s.vectors-1 {
			MOVQ(subMins, s.slots["SubMins"])
			MOVQ(sums, s.slots["SumPairs"])
		}
		s.finish(pass, as, mins, VFNMADD213PS, nil)
	})
	Label("block")
}

// outputs writes the outputs.
func (s *units) outputs() {
	out := GP64()
	MOVQ(s.arg("Out"), out)
	s.passes(func(pass int) {
		s.eachSum(func(row, v int, f reg.VecVirtual) {
			VMOVAPS(s.at(s.f, pass, row, v), f)
			emit.AVX2.Canonical(f)
		})
		s.store(out, pass)
	})
}
