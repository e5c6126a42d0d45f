package main

import (
	"strings"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// ahead is the distance of prefetches in bytes. With 4096, or the next rows of SmolLM2's 576
// columns, decoding is 4 to 25 % slower (EPYC, Zen 5).
const ahead = 8192

// superType is a type with blocks of 256 weights.
type superType struct {
	name   string
	bytes  int // of a block
	d      int // offset of the scale; the minimum follows
	group  int // columns of a sub-scale: 16 or 32; 256 without sub-scales
	minima bool
	signed bool // else codes are unsigned, with offset
	offset int
	// codes returns a function for columns 32i to 32i+31.
	codes func(b block) func(i int) reg.VecVirtual
	// pairs, if not nil, is codes for gemv with AVX2. For i = 2j it has columns 64j to 64j+15 and
	// 64j+32 to 64j+47, for i = 2j+1 the other columns of these 64.
	pairs func(b block) func(i int) reg.VecVirtual
	// subs returns the sub-scales as bytes, and the sub-minima: 16 or 8 in a register.
	subs func(b block) (subs, mins reg.VecVirtual)
	// scale returns the scale. Default: F16 at d.
	scale func(b block) reg.VecVirtual
	// avx2: there is no kernel with AVX-512.
	avx2 bool
}

var superTypes = []superType{
	{name: "Q2_K", bytes: 84, d: 80, group: 16, minima: true, codes: codesQ2K, subs: subsQ2K},
	{name: "Q3_K", bytes: 110, d: 108, group: 16, offset: 4, codes: codesQ3K, subs: subsQ3K},
	{name: "Q4_K", bytes: 144, d: 0, group: 32, minima: true, codes: codesQ4K, subs: sixBits},
	{name: "Q5_K", bytes: 176, d: 0, group: 32, minima: true, codes: codesQ5K, subs: sixBits},
	{name: "Q6_K", bytes: 210, d: 208, group: 16, offset: 32, codes: codesQ6K, subs: subsQ6K},
	{name: "IQ4_XS", bytes: 136, d: 0, group: 32, signed: true, codes: codesIQ4XS, pairs: pairsIQ4XS, subs: subsIQ4XS},
	{name: "TQ2_0", bytes: 66, d: 64, group: 256, offset: 1, codes: codesTQ2},
	{name: "TQ1_0", bytes: 54, d: 52, group: 256, offset: 1, codes: codesTQ1, avx2: true},
	lattice("IQ2_XXS", 66, 32, codesIQ2XXS, subsIQ2XXS, eighth),
	lattice("IQ2_XS", 74, 16, codesIQ2XS, oddNibbles(66, 16), eighth),
	lattice("IQ2_S", 82, 16, codesIQ2S, oddNibbles(74, 16), eighth),
	lattice("IQ3_XXS", 98, 32, codesIQ3XXS, subsIQ3XXS, quarter),
	lattice("IQ3_S", 110, 32, codesIQ3S, oddNibbles(106, 8), nil),
	lattice("IQ1_S", 50, 32, codesIQ1S, subsIQ1S, eighth),
	lattice("IQ1_M", 56, 16, codesIQ1M, subsIQ1M, scaleIQ1M),
}

func codesTwoBits(b block, at int) func(i int) reg.VecVirtual {
	var raw reg.VecVirtual
	return func(i int) reg.VecVirtual {
		if i%4 == 0 {
			raw = emit.AVX2.Load(b.at(at + 8*i))
		}
		return bits(i%4*2, 3, raw)
	}
}

func codesQ2K(b block) func(i int) reg.VecVirtual { return codesTwoBits(b, 16) }

func codesTQ2(b block) func(i int) reg.VecVirtual { return codesTwoBits(b, 0) }

// codesTQ1: see unpackTQ1_0 of formats/gguf. 160 codes are of 32 bytes, 80 of 16, 16 of 4.
func codesTQ1(b block) func(i int) reg.VecVirtual {
	q := emit.AVX2.Load(b.at(0))
	half := XMM()
	VMOVDQU(b.at(32), half)
	next := func() reg.VecVirtual { // half, to be multiplied by 3
		x := XMM()
		VMOVDQA(half, x)
		thrice(half)
		return x
	}
	return func(i int) reg.VecVirtual {
		switch {
		case i == 0:
			return ternary(q)
		case i < 5:
			thrice(q)
			return ternary(q)
		}
		x, high := next(), XMM()
		if i < 7 {
			high = next()
		} else {
			nine := XMM()
			VPBROADCASTD(b.at(48), high)
			VMOVDQA(high, nine)
			thrice(nine)
			VPUNPCKLDQ(nine, high, high)
			VMOVDQA(high, nine)
			thrice(nine)
			thrice(nine)
			VPUNPCKLQDQ(nine, high, high)
		}
		both := YMM()
		VINSERTI128(operand.U8(1), high, x.AsY(), both)
		return ternary(both)
	}
}

// thrice multiplies bytes by 3.
func thrice(x reg.VecVirtual) {
	y := emit.Like(x)
	VPADDB(x, x, y)
	VPADDB(y, x, x)
}

// ternary is the integer part of 3 times the fractions in bytes: 1 from 86/256 on, 2 from 171/256.
func ternary(x reg.VecVirtual) reg.VecVirtual {
	q := zero()
	for _, least := range []uint8{86, 171} {
		y := YMM()
		VPMAXUB(emit.AVX2.All(least), x, y)
		VPCMPEQB(x, y, y)
		VPSUBB(y, q, q)
	}
	return q
}

func codesQ3K(b block) func(i int) reg.VecVirtual {
	low, high := codesTwoBits(b, 32), emit.AVX2.Load(b.at(0))
	return func(i int) reg.VecVirtual {
		q := low(i)
		VPOR(bits(i-2, 4, high), q, q)
		return q
	}
}

func codesNibbles(b block, at int) func(i int) reg.VecVirtual {
	var raw reg.VecVirtual
	return func(i int) reg.VecVirtual {
		if i%2 == 0 {
			raw = emit.AVX2.Load(b.at(at + 16*i))
		}
		return bits(i%2*4, 15, raw)
	}
}

func codesQ4K(b block) func(i int) reg.VecVirtual { return codesNibbles(b, 16) }

func codesQ5K(b block) func(i int) reg.VecVirtual {
	low, high := codesNibbles(b, 48), emit.AVX2.Load(b.at(16))
	return func(i int) reg.VecVirtual {
		q := low(i)
		VPOR(bits(i-4, 16, high), q, q)
		return q
	}
}

func codesQ6K(b block) func(i int) reg.VecVirtual {
	var low [2]reg.VecVirtual
	var high reg.VecVirtual
	return func(i int) reg.VecVirtual {
		j := i % 4
		if j == 0 {
			at := i / 4
			low = [2]reg.VecVirtual{emit.AVX2.Load(b.at(64 * at)), emit.AVX2.Load(b.at(64*at + 32))}
			high = emit.AVX2.Load(b.at(128 + 32*at))
		}
		q := bits(j/2*4, 15, low[j%2])
		VPOR(bits(2*j-4, 48, high), q, q)
		return q
	}
}

func codesIQ4XS(b block) func(i int) reg.VecVirtual {
	return func(i int) reg.VecVirtual { return lookUp(iq4, nibbles(b.at(8+16*i))) }
}

func pairsIQ4XS(b block) func(i int) reg.VecVirtual {
	nibbles := codesNibbles(b, 8)
	return func(i int) reg.VecVirtual { return lookUp(iq4, nibbles(i)) }
}

func subsQ2K(b block) (subs, mins reg.VecVirtual) {
	subs, mins = XMM(), XMM()
	VMOVDQU(b.at(0), subs)
	VPSRLW(operand.Imm(4), subs, mins)
	VPAND(emit.AVX2.All(15), subs, subs)
	VPAND(emit.AVX2.All(15), mins, mins)
	return subs, mins
}

func subsQ6K(b block) (subs, mins reg.VecVirtual) {
	subs = XMM()
	VMOVDQU(b.at(192), subs)
	return subs, nil
}

// subsQ3K: see unpackQ3_K of formats/gguf.
func subsQ3K(b block) (subs, mins reg.VecVirtual) {
	subs, high := XMM(), XMM()
	VMOVQ(b.at(96), subs)
	fours := XMM()
	VPSRLW(operand.Imm(4), subs, fours)
	VPUNPCKLQDQ(fours, subs, subs)
	VPAND(emit.AVX2.All(15), subs, subs)
	VPBROADCASTD(b.at(104), high)
	VPSRLVD(emit.Const[uint32](0, 2, 4, 6), high, high)
	VPAND(emit.AVX2.All(3), high, high)
	VPSLLW(operand.Imm(4), high, high)
	VPOR(high, subs, subs)
	VPSUBB(emit.AVX2.All(32), subs, subs)
	return subs, nil
}

// sixBits: see sixBits of formats/gguf. Of the 12 bytes, dwords 0 to 2 are subs, mins and low.
func sixBits(b block) (subs, mins reg.VecVirtual) {
	first, low, high := XMM(), XMM(), XMM()
	VMOVQ(b.at(4), first)       // subs, mins
	VPBROADCASTD(b.at(12), low) // low, low
	VPSRLVD(emit.Const[uint32](0, 4, 0, 0), low, low)
	VPAND(emit.AVX2.All(15), low, low)
	VPSRLW(operand.Imm(2), first, high)
	VPAND(emit.AVX2.All(48), high, high)
	VPAND(emit.AVX2.All(63), first, first)
	VPOR(high, low, low)
	VPUNPCKLDQ(low, first, first)
	second := XMM()
	VPSRLDQ(operand.Imm(8), first, second)
	return first, second
}

// subsIQ4XS: 16 bits with the high 2 bits of each sub-scale + 32, then 32 bits with the low 4.
func subsIQ4XS(b block) (subs, mins reg.VecVirtual) {
	low, high := XMM(), XMM()
	VPBROADCASTD(b.at(4), low)
	VPSHUFB(emit.Const[uint8](0, 0, 0, 0, 0, 1, 0, 1, 0, 2, 0, 2, 0, 3, 0, 3), low, low)
	VPMULLW(emit.Const[uint16](16, 1, 16, 1, 16, 1, 16, 1), low, low)
	VPSRLW(operand.Imm(12), low, low)
	VPBROADCASTW(b.at(2), high)
	VPMULLW(emit.Const[uint16](1<<14, 1<<12, 1<<10, 1<<8, 1<<6, 1<<4, 1<<2, 1), high, high)
	VPSRLW(operand.Imm(14), high, high)
	VPSLLW(operand.Imm(4), high, high)
	VPOR(high, low, low)
	VPACKUSWB(low, low, low)
	VPSUBB(emit.AVX2.All(32), low, low)
	return low, nil
}

// groups is the number of sub-scales of a block.
func (s *superType) groups() int { return 256 / s.group }

// wide is a vector with the sub-scales from 8 half on, as dwords.
func wide(bytes reg.VecVirtual, half int) reg.VecVirtual {
	v := YMM()
	if half > 0 {
		high := XMM()
		VPSRLDQ(operand.Imm(8), bytes, high)
		bytes = high
	}
	VPMOVSXBD(bytes, v)
	return v
}

// spread is the order of bytes that repeats the words of the sub-scales of columns 32i to 32i+31: 8
// times each for groups of 16, or 16 times.
func (s *superType) spread(i int) operand.Mem {
	if s.group == 16 {
		return spreadWords(i%4*2, i%4*2+1)
	}
	return spreadWords(i, i)
}

// spreadWords is the order of bytes that repeats a word 8 times in each lane.
func spreadWords(low, high int) operand.Mem {
	var b []uint8
	for _, word := range [2]int{low, high} {
		for range 8 {
			b = append(b, uint8(2*word), uint8(2*word+1))
		}
	}
	return emit.Const(b...)
}

// gemv emits a kernel of one row of weights at a time.
func (s *superType) gemv(isa emit.ISA) {
	name := "gemv" + strings.ReplaceAll(s.name, "_", "") + isa.Suffix()
	emit.Func(name, "func(a *RowArgs)", name+" is the product of rows of "+s.name+".")
	args := GP64()
	Load(Param("a"), args)
	dst, data, rows := load(rowArgs, args, "Dst"), load(rowArgs, args, "Data"), load(rowArgs, args, "Rows")
	if isa == emit.AVX512 {
		hold(isa, s.constants512()...)
	} else {
		hold(isa)
	}
	Label("row")
	acts, scales := load(rowArgs, args, "Acts"), load(rowArgs, args, "Scales")
	sums, blocks := load(rowArgs, args, "Sums"), load(rowArgs, args, "Blocks")
	f := XMM()
	VPXOR(f, f, f)
	Label("block")
	b := block{base: data}
	for i := 0; i < s.bytes; i += 64 {
		PREFETCHT0(b.at(ahead + i))
	}
	total, minima := s.dots(isa, b, acts, sums)
	other := total
	if s.minima {
		other = minima
	}
	both := emit.AVX2.PairSums(total, other) // in each lane: 2 sums of total, 2 of other
	both = emit.AVX2.PairSums(both, both)
	high, t := XMM(), both.AsX()
	VEXTRACTI128(operand.U8(1), both, high)
	VPADDD(high, t, t)
	VCVTDQ2PS(t, t)
	d := s.numbers(b)
	as := XMM()
	VBROADCASTSS(operand.Mem{Base: scales}, as)
	VMULPS(as, d, d)
	VFMADD231SS(t, d, f)
	if s.minima {
		VMOVSHDUP(t, t)
		VMOVSHDUP(d, d)
		VFNMADD231SS(t, d, f)
	}
	ADDQ(operand.U32(s.bytes), data)
	ADDQ(operand.U32(256), acts)
	ADDQ(operand.Imm(4), scales)
	ADDQ(operand.U32(4*s.groups()), sums)
	DECQ(blocks)
	JNE(operand.LabelRef("block"))
	emit.AVX2.Canonical(f)
	VMOVSS(f, operand.Mem{Base: dst})
	ADDQ(operand.Imm(4), dst)
	// Blocks of a row may be followed by bytes of another matrix's columns.
	end := load(rowArgs, args, "Blocks")
	IMUL3Q(operand.U32(s.bytes), end, end)
	SUBQ(end, data)
	ADDQ(rowArgs.Field(args, "RowBytes"), data)
	DECQ(rows)
	JNE(operand.LabelRef("row"))
	VZEROUPPER()
	RET()
}

// numbers are the scale and the minimum of a block.
func (s *superType) numbers(b block) reg.VecVirtual {
	d := XMM()
	switch {
	case s.scale != nil:
		return s.scale(b)
	case s.minima:
		VMOVD(b.at(s.d), d)
	default:
		VPBROADCASTW(b.at(s.d), d)
	}
	VCVTPH2PS(d, d)
	return d
}

// dots emits the sums of a block: products times sub-scales, and sums of activations times
// sub-minima, each to be added over 8 dwords.
func (s *superType) dots(isa emit.ISA, b block, acts, sums reg.Register) (total, minima reg.VecVirtual) {
	total = zero()
	offset := s.offset
	if isa == emit.AVX512 && s.signed {
		offset = 128
	}
	act := func(i int) operand.Mem { return operand.Mem{Base: acts, Disp: 32 * i} }
	if s.subs == nil {
		if isa == emit.AVX512 {
			s.dots512(b, nil, acts, total)
		} else {
			codes, all := s.codes(b), YMM()
			for i := range 8 {
				w := words(codes(i), s.signed, act(i))
				if i == 0 {
					all = w
				} else {
					VPADDW(w, all, all)
				}
			}
			VPMADDWD(emit.Ones(), all, total)
		}
		sum := XMM()
		VMOVD(operand.Mem{Base: sums}, sum)
		times(offset, sum)
		VPSUBD(sum.AsY(), total, total)
		return total, nil
	}
	subs, mins := s.subs(b)
	sum := func(half int) operand.Mem { return operand.Mem{Base: sums, Disp: 32 * half} }
	// sumsTimes is the sum of the activations' sums times bytes.
	sumsTimes := func(bytes reg.VecVirtual) reg.VecVirtual {
		all := wide(bytes, 0)
		VPMULLD(sum(0), all, all)
		for half := 1; half < s.groups()/8; half++ {
			x := wide(bytes, half)
			VPMULLD(sum(half), x, x)
			VPADDD(x, all, all)
		}
		return all
	}
	if s.minima {
		minima = sumsTimes(mins)
	}
	if offset != 0 {
		x := sumsTimes(subs)
		times(offset, x)
		VPSUBD(x, total, total)
	}
	if isa == emit.AVX512 {
		s.dots512(b, subs, acts, total)
		return total, minima
	}
	var factors [2]reg.VecVirtual // words of sub-scales, the same in both lanes
	w := YMM()
	VPMOVSXBW(subs.AsX(), w)
	for i := range s.groups() / 8 {
		factors[i] = YMM()
		VPERM2I128(operand.U8(0x11*i), w, w, factors[i])
	}
	if s.pairs != nil {
		s.pairDots(b, acts, factors[0], total)
		return total, minima
	}
	codes := s.codes(b)
	for i := range 8 {
		p := words(codes(i), s.signed, act(i))
		x := YMM()
		VPSHUFB(s.spread(i), factors[i*s.groups()/64], x)
		VPMADDWD(x, p, p)
		VPADDD(p, total, total)
	}
	return total, minima
}

// pairDots adds the products of signed codes in pairs of groups of 32 columns.
func (s *superType) pairDots(b block, acts reg.Register, factors, total reg.VecVirtual) {
	codes, x := s.pairs(b), YMM()
	for i := range 8 {
		if i%2 == 0 {
			VPSHUFB(spreadWords(i, i+1), factors, x)
		}
		a, at := YMM(), operand.Mem{Base: acts, Disp: 64*(i/2) + 16*(i%2)}
		VMOVDQU(at, a.AsX())
		VINSERTI128(operand.U8(1), at.Offset(32), a, a)
		p := words(codes(i), true, a)
		VPMADDWD(x, p, p)
		VPADDD(p, total, total)
	}
}

// unpack emits an Unpack.
func (s *superType) unpack() {
	name := "unpack" + strings.ReplaceAll(s.name, "_", "") + "AVX2"
	pointers := []string{"Scales"}
	if s.subs != nil {
		pointers = append(pointers, "Subs")
	}
	if s.minima {
		pointers = append(pointers, "Mins", "SubMins")
	}
	var numbers operand.Mem
	first := true
	unpackLoop(name, name+" is Format.unpack for "+s.name+".", s.bytes, pointers, s.offset,
		func(b block, more reg.VecVirtual, stride, step reg.Register, at map[string]reg.Register) {
			if first {
				numbers, first = AllocLocal(64), false
			}
			codes := s.codes(b)
			for i := range 8 {
				store8(codes(i), more, at["Codes"], stride)
			}
			d := s.numbers(b)
			VMOVSS(d, operand.Mem{Base: at["Scales"]})
			ADDQ(step, at["Scales"])
			if s.minima {
				VEXTRACTPS(operand.U8(1), d, operand.Mem{Base: at["Mins"]})
				ADDQ(step, at["Mins"])
			}
			if s.subs == nil {
				return
			}
			subs, mins := s.subs(b)
			put := func(bytes reg.VecVirtual, to reg.Register) {
				for half := range s.groups() / 8 {
					VMOVDQU(wide(bytes, half), numbers.Offset(32*half))
				}
				scatter(numbers, s.groups(), to, step)
			}
			put(subs, at["Subs"])
			if s.minima {
				put(mins, at["SubMins"])
			}
		})
}
