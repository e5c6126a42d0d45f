package main

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tallSums is the number of vectors of sums that a product of many rows of activations holds.
const tallSums = 8

// tall emits the products of codes of up to 5 bits with 8 or 16 rows of activations (Step.Quads).
// A vector holds 8 rows of activations, 4 columns of each, and is multiplied with 4 columns of one
// row of the panel in all its dwords. A sum of 32 columns is then one word pair, to which no
// shuffle adds another: 16 products of codes of up to 15 and activations of up to 128 fit a word.
// Of codes of 5 bits, 8 products do.
//
// The rows of the panel take turns in passes of tallSums vectors of sums. The outputs f of all
// passes, and the sums of groups that are not 32 columns long, are on the stack.
type tall struct {
	*kernel
	vectors int // of rows of activations
	rows    int // of the panel in a pass
	sums    [][]reg.VecVirtual
	f, t    operand.Mem
	code    reg.GPVirtual // long groups: the current columns in a pass
	column  reg.GPVirtual // likewise, of the activations
}

// beginTall starts a function with the sums of some passes on the stack.
func beginTall(r result, kind string, vectors, passes int) *tall {
	s := &tall{kernel: begin(emit.AVX2, r, kind, 8*vectors, 8), vectors: vectors, rows: tallSums / vectors}
	Attributes(0) // the stack is too large for NOSPLIT
	for range s.rows {
		s.sums = append(s.sums, emit.AVX2.Vectors(vectors))
	}
	s.stack(passes)
	return s
}

// productTall2 emits a product for codes of up to 4 bits. Or it is for 5 bits, and has no short way
// for groups of 32 columns.
func productTall2(r result, five bool, vectors int) {
	kind := "Tall"
	if five {
		kind = "Five"
	}
	s := beginTall(r, kind, vectors, 1)
	s.code, s.column = GP64(), GP64()
	Label("group")
	MOVLQSX(operand.Mem{Base: s.steps}, s.left)
	if five {
		s.fives()
		s.next()
		s.end()
		return
	}
	CMPQ(s.left, operand.U8(2))
	JNE(operand.LabelRef("long"))
	for pass := range vectors {
		for i := range 8 {
			s.add(s.codes, s.acts, pass, i, i == 0)
		}
		s.eachSum(func(_, _ int, sum reg.VecVirtual) { VPMADDWD(emit.Ones(), sum, sum) })
		s.flush(pass, "short")
	}
	s.prefetch(2)
	ADDQ(operand.U32(2*16*s.nr), s.codes)
	ADDQ(operand.U32(2*16*s.mr), s.acts)
	Label("next")
	s.next()
	JMP(operand.LabelRef("end"))
	s.long()
	Label("end")
	s.end()
}

// end writes the outputs and ends the function.
func (s *tall) end() {
	if s.result != dots {
		s.outputs()
	}
	VZEROUPPER()
	RET()
}

// stack makes room on the stack, in whole cache lines, for the sums of some passes and the outputs,
// and clears the outputs.
func (s *tall) stack(passes int) {
	const line, size = 64, 32 * tallSums
	bytes := size * passes
	if s.result != dots {
		bytes += size * s.vectors
	}
	base := GP64()
	LEAQ(AllocLocal(bytes+line), base)
	ADDQ(operand.Imm(line-1), base)
	ANDQ(operand.I8(-line), base)
	s.t = operand.Mem{Base: base}
	s.f = s.t.Offset(size * passes)
	if s.result == dots {
		return
	}
	zero := YMM()
	VPXOR(zero, zero, zero)
	for i := range s.vectors * tallSums {
		VMOVDQA(zero, s.f.Offset(32*i))
	}
}

// eachSum calls f for the sums of every row of the panel and vector of rows of activations.
func (s *tall) eachSum(f func(row, v int, sum reg.VecVirtual)) {
	for row, list := range s.sums {
		for v, sum := range list {
			f(row, v, sum)
		}
	}
}

// at is the place of a vector of sums in t, or in the outputs of a pass.
func (s *tall) at(base operand.Mem, pass, row, v int) operand.Mem {
	return base.Offset(32 * ((pass*s.rows+row)*s.vectors + v))
}

// add adds 4 columns, the i-th ones, to the sums, or begins the sums with them.
func (s *tall) add(codes, acts reg.Register, pass, i int, first bool) {
	columns := emit.AVX2.Vectors(s.vectors)
	for v := range columns {
		VMOVDQU(operand.Mem{Base: acts, Disp: 4*s.mr*i + 32*v}, columns[v])
	}
	for row, sums := range s.sums {
		code := YMM()
		VPBROADCASTD(operand.Mem{Base: codes, Disp: 8*s.nr*(i/2) + 8*(pass*s.rows+row) + 4*(i%2)}, code)
		for v, sum := range sums {
			if first {
				VPMADDUBSW(columns[v], code, sum)
				continue
			}
			p := code
			if v < s.vectors-1 {
				p = YMM()
			}
			VPMADDUBSW(columns[v], code, p)
			VPADDW(p, sum, sum)
		}
	}
}

// long is the way of groups that are not 32 columns long: passes add 32 columns, or the last 16, to
// the sums on the stack.
func (s *tall) long() {
	Label("long")
	s.eachPass("long", func(pass int, left reg.Register, label func(name string) string) {
		for i := range 4 {
			s.add(s.code, s.column, pass, i, i == 0)
		}
		s.advance(pass)
		DECQ(left)
		JE(operand.LabelRef(label("add")))
		for i := range 4 {
			s.add(s.code, s.column, pass, i, false)
		}
		s.advance(pass)
		DECQ(left)
		Label(label("add"))
		s.addUp()
		TESTQ(left, left)
	})
	JMP(operand.LabelRef("next"))
}

// fives adds 16 columns of codes of 5 bits at a time.
func (s *tall) fives() {
	s.eachPass("five", func(pass int, left reg.Register, _ func(name string) string) {
		for i := range 4 {
			s.add(s.code, s.column, pass, i, i == 0)
		}
		s.addUp()
		s.advance(pass)
		DECQ(left)
	})
}

// eachPass emits the passes of a group. add adds columns to the sums on the stack, and sets the
// zero flag after the last.
func (s *tall) eachPass(way string, add func(pass int, left reg.Register, label func(name string) string)) {
	for pass := range s.vectors {
		label := func(name string) string { return fmt.Sprint(name, pass) }
		left, zero := GP64(), YMM()
		MOVQ(s.left, left)
		MOVQ(s.codes, s.code)
		MOVQ(s.acts, s.column)
		VPXOR(zero, zero, zero)
		s.eachSum(func(row, v int, _ reg.VecVirtual) { VMOVDQA(zero, s.at(s.t, 0, row, v)) })
		Label(label("block"))
		add(pass, left, label)
		JNE(operand.LabelRef(label("block")))
		s.flush(pass, way)
	}
	MOVQ(s.code, s.codes)
	MOVQ(s.column, s.acts)
}

// addUp adds the words of the sums to the sums on the stack, and loads these.
func (s *tall) addUp() {
	s.eachSum(func(row, v int, sum reg.VecVirtual) {
		at := s.at(s.t, 0, row, v)
		VPMADDWD(emit.Ones(), sum, sum)
		VPADDD(at, sum, sum)
		VMOVDQA(sum, at)
	})
}

// advance goes on by a step in a pass of a long group. The first pass prefetches.
func (s *tall) advance(pass int) {
	if pass == 0 {
		s.prefetch(1)
	}
	ADDQ(operand.U32(16*s.nr), s.code)
	ADDQ(operand.U32(16*s.mr), s.column)
}

// flush ends a pass of a group.
func (s *tall) flush(pass int, way string) {
	label := func(name string) operand.LabelRef { return operand.LabelRef(fmt.Sprint(name, way, pass)) }
	zero := func(row int) operand.Mem { return operand.Mem{Base: s.zeros, Disp: 4 * row} }
	activations := func(v int) operand.Mem { return s.sum(8 * v) }
	if s.result == shifted {
		shift := emit.AVX2.Load(s.arg("Shift"))
		s.eachSum(func(_, _ int, sum reg.VecVirtual) { VPSLLVD(shift, sum, sum) })
	}
	CMPQ(s.arg("ZeroStep"), operand.U8(0))
	JNE(label("zeros"))
	z := emit.AVX2.Vectors(s.vectors)
	VPBROADCASTD(zero(0), z[0])
	for v := s.vectors - 1; v >= 0; v-- {
		VPMULLD(activations(v), z[0], z[v])
	}
	s.eachSum(func(_, v int, sum reg.VecVirtual) { VPSUBD(z[v], sum, sum) })
	JMP(label("finish"))
	Label(string(label("zeros")))
	for row, sums := range s.sums {
		z := YMM()
		VPBROADCASTD(zero(pass*s.rows+row), z)
		for v, sum := range sums {
			x := YMM()
			VPMULLD(activations(v), z, x)
			VPSUBD(x, sum, sum)
		}
	}
	Label(string(label("finish")))
	if s.result == dots {
		s.store(s.out, pass)
		return
	}
	for row, sums := range s.sums {
		scale := YMM()
		VBROADCASTSS(operand.Mem{Base: s.scales, Disp: 4 * (pass*s.rows + row)}, scale)
		for v, sum := range sums {
			f := s.at(s.f, pass, row, v)
			VCVTDQ2PS(sum, sum)
			VFMADD213PS(f, scale, sum)
			VMOVUPS(sum, f)
		}
	}
}

// outputs finishes and writes the outputs, as finishGroup does.
func (s *tall) outputs() {
	out := GP64()
	MOVQ(s.arg("Out"), out)
	for pass := range s.vectors {
		for row, sums := range s.sums {
			number := func(name string) reg.VecVirtual {
				x := YMM()
				VBROADCASTSS(s.perRow(name, pass*s.rows+row), x)
				return x
			}
			rowSum, bias := number("RowSums"), number("Bias")
			for v, f := range sums {
				VMOVUPS(s.at(s.f, pass, row, v), f)
				VFMADD231PS(s.perRow("NegZero", 8*v), rowSum, f)
				VMULPS(s.perRow("Rec", 8*v), f, f)
				VADDPS(bias, f, f)
				emit.AVX2.Canonical(f)
			}
		}
		s.store(out, pass)
	}
}

// store transposes the sums of a pass, 4 rows of the panel at a time, and writes them to the rows
// of out.
func (s *tall) store(out reg.Register, pass int) {
	stride := GP64()
	MOVQ(s.arg("OutStride"), stride)
	for quad := 0; quad < s.rows; quad += 4 {
		low, high := GP64(), GP64() // rows 0..3 and 4..7 of a vector
		LEAQ(operand.Mem{Base: out, Disp: 4 * (pass*s.rows + quad)}, low)
		for v := range s.vectors {
			LEAQ(operand.Mem{Base: low, Index: stride, Scale: 4}, high)
			for m, x := range transpose(s.sums[quad][v], s.sums[quad+1][v], s.sums[quad+2][v], s.sums[quad+3][v]) {
				VMOVUPS(x.AsX(), operand.Mem{Base: low})
				VEXTRACTF128(operand.U8(1), x, operand.Mem{Base: high})
				if m < 3 || v < s.vectors-1 {
					ADDQ(stride, low)
					ADDQ(stride, high)
				}
			}
			MOVQ(high, low)
		}
	}
}

// transpose returns vectors whose lanes hold dword 0 of a, b, c and d, dword 1 of them, and so on.
func transpose(a, b, c, d reg.VecVirtual) [4]reg.VecVirtual {
	var low, high [2]reg.VecVirtual
	for i, pair := range [2][2]reg.VecVirtual{{a, b}, {c, d}} {
		low[i], high[i] = YMM(), YMM()
		VUNPCKLPS(pair[1], pair[0], low[i])
		VUNPCKHPS(pair[1], pair[0], high[i])
	}
	x := [4]reg.VecVirtual{YMM(), YMM(), YMM(), YMM()}
	VUNPCKLPD(low[1], low[0], x[0])
	VUNPCKHPD(low[1], low[0], x[1])
	VUNPCKLPD(high[1], high[0], x[2])
	VUNPCKHPD(high[1], high[0], x[3])
	return x
}
