package main

import (
	"strings"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// smallRows is the number of rows of weights of a step.
const smallRows = 8

// smallType is a type with blocks of 32 weights, or NVFP4, with blocks of 64. Scales come first.
type smallType struct {
	name   string
	bytes  int // of a block
	minima bool
	signed bool // else codes are unsigned, with offset
	offset int
	codes  func(b block) reg.VecVirtual
	hold   func() []operand.Mem // constants of codes
	// nibbles is the offset of codes of 4 bits, table their numbers; see pair.
	nibbles int
	table   []int8
	// high returns codes + 128, for VPDPBUSD.
	high func(b block) reg.VecVirtual
	// scales returns the scales of 8 rows. Default: F16, see numbers.
	scales func(row func(int) block, group int) reg.VecVirtual
	// scale returns the scales of a block, for an Unpack. Default: F16.
	scale func(b block) reg.VecVirtual
}

var smallTypes = []smallType{
	{name: "Q4_0", bytes: 18, nibbles: 2, offset: 8, codes: func(b block) reg.VecVirtual { return nibbles(b.at(2)) }, hold: holdNibbles},
	{name: "Q4_1", bytes: 20, nibbles: 4, minima: true, codes: func(b block) reg.VecVirtual { return nibbles(b.at(4)) }, hold: holdNibbles},
	{name: "Q5_0", bytes: 22, offset: 16, codes: func(b block) reg.VecVirtual { return fiveBits(b, 2) }, hold: holdFive},
	{name: "Q5_1", bytes: 24, minima: true, codes: func(b block) reg.VecVirtual { return fiveBits(b, 4) }, hold: holdFive},
	{
		name: "Q8_0", bytes: 34, signed: true, hold: func() []operand.Mem { return nil },
		codes: func(b block) reg.VecVirtual { return emit.AVX2.Load(b.at(2)) },
		high: func(b block) reg.VecVirtual {
			v := emit.AVX2.Load(emit.AVX2.All(128))
			VPXOR(b.at(2), v, v)
			return v
		},
	},
	{
		name: "IQ4_NL", bytes: 18, nibbles: 2, table: iq4, signed: true, hold: holdNibbles,
		codes: func(b block) reg.VecVirtual { return lookUp(iq4, nibbles(b.at(2))) },
		high: func(b block) reg.VecVirtual {
			var table []int8
			for _, x := range iq4 {
				table = append(table, x^-128)
			}
			return lookUp(table, nibbles(b.at(2)))
		},
	},
	{
		name: "MXFP4", bytes: 17, nibbles: 1, table: fp4, offset: fp4Offset, hold: holdFP4, scales: powers, scale: power,
		codes: func(b block) reg.VecVirtual { return lookUp(fp4, nibbles(b.at(1))) },
	},
	{
		name: "NVFP4", bytes: 36, offset: fp4Offset, hold: holdNV, scales: nvScales, scale: nvScale,
		codes: nvCodes,
	},
}

// fiveBits are codes of 4 bits behind 32 bits that are bit 4 of each.
func fiveBits(b block, at int) reg.VecVirtual {
	order, bit := constant(fifthOrder()), constant(fifthBits())
	high, q := YMM(), nibbles(b.at(at+4))
	VPBROADCASTD(b.at(at), high)
	VPSHUFB(order, high, high)
	VPAND(bit, high, high)
	VPCMPEQB(bit, high, high)
	VPOR(and(16, high), q, q)
	return q
}

// fifthOrder is the byte of 32 bits with the bit of each code, fifthBits the bit in it.
func fifthOrder() operand.Mem {
	var v []uint8
	for i := range 32 {
		v = append(v, uint8(i/8))
	}
	return emit.Const(v...)
}

func fifthBits() operand.Mem {
	var v []uint8
	for i := range 32 {
		v = append(v, 1<<(i%8))
	}
	return emit.Const(v...)
}

func holdNibbles() []operand.Mem { return []operand.Mem{emit.AVX2.All(15)} }

func holdFive() []operand.Mem {
	return append(holdNibbles(), fifthOrder(), fifthBits(), emit.AVX2.All(16))
}

// gemv emits a kernel of 8 rows of weights at a time.
func (s *smallType) gemv(isa emit.ISA) {
	name := "gemv" + strings.ReplaceAll(s.name, "_", "") + isa.Suffix()
	emit.Func(name, "func(a *RowArgs)", name+" is the product of rows of "+s.name+".")
	args := GP64()
	Load(Param("a"), args)
	dst, data, rows := load(rowArgs, args, "Dst"), load(rowArgs, args, "Data"), load(rowArgs, args, "Rows")
	size := load(rowArgs, args, "RowBytes")
	second := K()
	if s.pairs(isa) {
		s.holdPairs()
		mask := GP32()
		MOVL(operand.U32(0xff00), mask)
		KMOVW(mask, second)
	} else {
		hold(emit.AVX2, s.hold()...)
	}
	three := GP64()
	LEAQ(operand.Mem{Base: size, Index: size, Scale: 2}, three)
	Label("rows")
	acts, scales := load(rowArgs, args, "Acts"), load(rowArgs, args, "Scales")
	extra, blocks := load(rowArgs, args, "Sums"), load(rowArgs, args, "Blocks")
	if s.minima {
		extra = load(rowArgs, args, "ActSums")
	}
	low, high := copyOf(data), GP64() // rows 0 and 4
	LEAQ(operand.Mem{Base: data, Index: size, Scale: 4}, high)
	next := GP64() // a part of the rows of the next step
	LEAQ(operand.Mem{Base: data, Index: size, Scale: 8}, next)
	f := zero()
	Label("block")
	for i := 0; i < smallRows*s.bytes; i += 64 {
		PREFETCHT0(operand.Mem{Base: next, Disp: ahead + i})
	}
	ADDQ(operand.U32(smallRows*s.bytes), next)
	row := func(r int) block {
		b := block{base: low}
		if r >= 4 {
			b.base = high
		}
		switch r % 4 {
		case 1, 2:
			b.index, b.scale = size, uint8(r%4)
		case 3:
			b.index, b.scale = three, 1
		}
		return b
	}
	for part := range s.parts() {
		at := func(r int) block {
			b := row(r)
			b.disp = 16 * part
			return b
		}
		var sums []reg.VecVirtual
		output := row // of scales
		if s.pairs(isa) {
			a := ZMM()
			VBROADCASTI64X4(operand.Mem{Base: acts}, a)
			sums = append(sums, s.pairSums(row, a, second))
			output = func(i int) block { return row(pairedRow(i)) }
		} else {
			sums = s.sums(isa, at, emit.AVX2.Load(operand.Mem{Base: acts, Disp: 32 * part}))
		}
		as := YMM()
		VBROADCASTSS(operand.Mem{Base: scales, Disp: 4 * part}, as)
		for i, t := range sums {
			group := part*len(sums) + i
			if offset := s.excess(isa); offset != 0 {
				x := YMM()
				VPBROADCASTD(operand.Mem{Base: extra, Disp: 4 * group}, x)
				times(offset, x)
				VPSUBD(x, t, t)
			}
			VCVTDQ2PS(t, t)
			d, m := s.numbers(output, group)
			VMULPS(as, d, d)
			VFMADD231PS(t, d, f)
			if s.minima {
				as := YMM()
				VBROADCASTSS(operand.Mem{Base: extra}, as)
				VFMADD231PS(as, m, f)
			}
		}
	}
	ADDQ(operand.Imm(uint64(s.bytes)), low)
	ADDQ(operand.Imm(uint64(s.bytes)), high)
	ADDQ(operand.Imm(uint64(32*s.parts())), acts)
	ADDQ(operand.Imm(uint64(4*s.parts())), scales)
	ADDQ(operand.Imm(uint64(4*s.groups())), extra)
	DECQ(blocks)
	JNE(operand.LabelRef("block"))
	if s.pairs(isa) {
		VPERMPS(f, emit.AVX2.Load(natural512()), f)
	}
	emit.AVX2.Canonical(f)
	VMOVUPS(f, operand.Mem{Base: dst})
	ADDQ(operand.U32(4*smallRows), dst)
	LEAQ(operand.Mem{Base: data, Index: size, Scale: 8}, data)
	SUBQ(operand.Imm(smallRows), rows)
	JNE(operand.LabelRef("rows"))
	VZEROUPPER()
	RET()
}

// excess is the number by which the codes that the kernel multiplies are too large.
func (s *smallType) excess(isa emit.ISA) int {
	if isa != emit.AVX2 && s.signed {
		return 128
	}
	return s.offset
}

// sums are the sums of products of 32 columns of 8 rows, for each group of columns.
func (s *smallType) sums(isa emit.ISA, row func(int) block, a reg.VecVirtual) []reg.VecVirtual {
	var sum func(first, n int) reg.VecVirtual // the dwords of n rows, added up in each lane
	sum = func(first, n int) reg.VecVirtual {
		if n > 1 {
			x := sum(first, n/2)
			return emit.AVX2.PairSums(x, sum(first+n/2, n/2))
		}
		b := row(first)
		if isa != emit.AVX2 {
			v, codes := zero(), s.codes
			if s.signed {
				codes = s.high
			}
			isa.Dot(a, codes(b), v)
			return v
		}
		w := s.codes(b)
		if s.signed {
			x := YMM()
			VPSIGNB(w, a, x)
			VPABSB(w, w)
			VPMADDUBSW(x, w, w)
		} else {
			VPMADDUBSW(a, w, w)
		}
		VPMADDWD(emit.Ones(), w, w)
		return w
	}
	first := sum(0, 4)
	second := sum(4, 4)
	t, x := YMM(), YMM()
	VPERM2I128(operand.U8(0x20), second, first, t)
	VPERM2I128(operand.U8(0x31), second, first, x)
	if s.groups() > s.parts() { // a lane is a group
		return []reg.VecVirtual{t, x}
	}
	VPADDD(x, t, t)
	return []reg.VecVirtual{t}
}

// parts is the number of blocks of activations of a block of weights, groups the number of scales.
func (s *smallType) parts() int {
	if s.name == "NVFP4" {
		return 2
	}
	return 1
}

func (s *smallType) groups() int { return s.parts() * s.parts() }

// numbers are the scales of a group, and the minima, of 8 rows.
func (s *smallType) numbers(row func(int) block, group int) (d, m reg.VecVirtual) {
	if s.scales != nil {
		return s.scales(row, group), nil
	}
	d = YMM()
	if !s.minima {
		var pairs [2]reg.VecVirtual
		for i := range pairs {
			pairs[i] = XMM()
			VPXOR(pairs[i], pairs[i], pairs[i])
			for r := range 4 {
				VPINSRW(operand.U8(r), row(4*i+r).at(0), pairs[i], pairs[i])
			}
		}
		VPUNPCKLQDQ(pairs[1], pairs[0], pairs[0])
		VCVTPH2PS(pairs[0], d)
		return d, nil
	}
	m = YMM()
	var both [2]reg.VecVirtual
	for i := range both {
		both[i] = XMM()
		VMOVD(row(4*i).at(0), both[i])
		for r := 1; r < 4; r++ {
			VPINSRD(operand.U8(r), row(4*i+r).at(0), both[i], both[i])
		}
	}
	words := func(into reg.VecVirtual, part func(x, y reg.VecVirtual)) {
		x, y := XMM(), XMM()
		part(both[0], x)
		part(both[1], y)
		VPACKUSDW(y, x, x)
		VCVTPH2PS(x, into)
	}
	words(d, func(x, y reg.VecVirtual) { VPAND(emit.AVX2.All32(0xffff), x, y) })
	words(m, func(x, y reg.VecVirtual) { VPSRLD(operand.Imm(16), x, y) })
	return d, m
}

// unpack emits an Unpack.
func (s *smallType) unpack() {
	name := "unpack" + strings.ReplaceAll(s.name, "_", "") + "AVX2"
	pointers := []string{"Scales"}
	if s.minima {
		pointers = append(pointers, "Mins")
	}
	unpackLoop(name, name+" is Format.unpack for "+s.name+".", s.bytes, pointers, s.offset,
		func(b block, more reg.VecVirtual, stride, step reg.Register, at map[string]reg.Register) {
			for part := range s.parts() {
				b.disp = 16 * part
				store8(s.codes(b), more, at["Codes"], stride)
			}
			b.disp = 0
			d := XMM()
			switch {
			case s.scale != nil:
				d = s.scale(b)
			case s.minima:
				VMOVD(b.at(0), d)
				VCVTPH2PS(d, d)
			default:
				VPBROADCASTW(b.at(0), d)
				VCVTPH2PS(d, d)
			}
			for g := 1; g < s.groups(); g++ {
				VMOVSS(d, operand.Mem{Base: at["Scales"]})
				ADDQ(step, at["Scales"])
				VPSRLDQ(operand.U8(4), d, d)
			}
			VMOVSS(d, operand.Mem{Base: at["Scales"]})
			ADDQ(step, at["Scales"])
			if s.minima {
				VEXTRACTPS(operand.U8(1), d, operand.Mem{Base: at["Mins"]})
				ADDQ(step, at["Mins"])
			}
		})
}
