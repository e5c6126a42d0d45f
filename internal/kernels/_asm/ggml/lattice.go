package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Codes of these types are points of a lattice: see formats/gguf/blocks_lattice.go. Package ggml
// has the tables of points and of signs.

func lattice(name string, bytes, group int, codes func(block) func(int) reg.VecVirtual, subs func(block) (subs, mins reg.VecVirtual), scale func(block) reg.VecVirtual) superType {
	return superType{name: name, bytes: bytes, group: group, signed: true, codes: codes, subs: subs, scale: scale, avx2: true}
}

// table is the address of a table of package ggml.
func table(name string) reg.Register {
	r := GP64()
	LEAQ(operand.NewDataAddr(operand.Symbol{Name: "·" + name}, 0), r)
	return r
}

// moved is the memory's number of some bytes in a register, its bits moved to the left, or to the
// right if by is negative, under a mask.
func moved(mov func(operand.Op, operand.Op), m operand.Mem, by int, mask uint32) reg.GPVirtual {
	r := GP32()
	mov(m, r)
	if by > 0 {
		SHLL(operand.U8(by), r)
	} else if by < 0 {
		SHRL(operand.U8(-by), r)
	}
	if mask != 0 {
		ANDL(operand.U32(mask), r)
	}
	return r
}

// byteAt is the byte of memory plus the other bits.
func byteAt(m operand.Mem, others reg.GPVirtual) reg.GPVirtual {
	r := moved(MOVBLZX, m, 0, 0)
	if others != nil {
		ORL(others, r)
	}
	return r
}

// fours are 32 bytes of the elements of a table of 8 bytes.
func fours(table reg.Register, index func(l int) reg.GPVirtual) reg.VecVirtual {
	var x [2]reg.VecVirtual
	for l := range 4 {
		m := operand.Mem{Base: table, Index: index(l).As64(), Scale: 8}
		if l%2 == 0 {
			x[l/2] = XMM()
			VMOVQ(m, x[l/2])
		} else {
			VMOVHPS(m, x[l/2], x[l/2])
		}
	}
	return joined(x)
}

// eights are 32 bytes of the elements of a table of 4 bytes.
func eights(table reg.Register, index func(l int) reg.GPVirtual) reg.VecVirtual {
	var x [2]reg.VecVirtual
	for l := range 8 {
		m := operand.Mem{Base: table, Index: index(l).As64(), Scale: 4}
		if l%4 == 0 {
			x[l/4] = XMM()
			VMOVD(m, x[l/4])
		} else {
			VPINSRD(operand.U8(l%4), m, x[l/4], x[l/4])
		}
	}
	return joined(x)
}

func joined(x [2]reg.VecVirtual) reg.VecVirtual {
	v := YMM()
	VINSERTI128(operand.U8(1), x[1], x[0].AsY(), v)
	return v
}

// negate negates bytes where the other vector is -1.
func negate(x, minus reg.VecVirtual) reg.VecVirtual {
	VPXOR(minus, x, x)
	VPSUBB(minus, x, x)
	return x
}

// minus is -1 for each of 32 bits of memory that is 1.
func minus(m operand.Mem) reg.VecVirtual {
	v := YMM()
	VPBROADCASTD(m, v)
	VPSHUFB(fifthOrder(), v, v)
	VPAND(fifthBits(), v, v)
	VPCMPEQB(fifthBits(), v, v)
	return v
}

// evenMinus is -1 for the signs of 4 times 7 bits of a dword.
func evenMinus(signs reg.Register, word operand.Mem) reg.VecVirtual {
	return fours(signs, func(l int) reg.GPVirtual { return moved(MOVL, word, -7*l, 127) })
}

func codesIQ2XXS(b block) func(i int) reg.VecVirtual {
	points, signs := table("latticeIQ2XXS"), table("evenSigns")
	return func(i int) reg.VecVirtual {
		x := fours(points, func(l int) reg.GPVirtual { return byteAt(b.at(2+8*i+l), nil) })
		return negate(x, evenMinus(signs, b.at(6+8*i)))
	}
}

func codesIQ2XS(b block) func(i int) reg.VecVirtual {
	points, signs := table("latticeIQ2XS"), table("evenSigns")
	return func(i int) reg.VecVirtual {
		x := fours(points, func(l int) reg.GPVirtual { return moved(MOVWLZX, b.at(2+8*i+2*l), 0, 511) })
		return negate(x, fours(signs, func(l int) reg.GPVirtual { return moved(MOVWLZX, b.at(2+8*i+2*l), -9, 0) }))
	}
}

func codesIQ2S(b block) func(i int) reg.VecVirtual {
	points := table("latticeIQ2S")
	return func(i int) reg.VecVirtual {
		x := fours(points, func(l int) reg.GPVirtual {
			return byteAt(b.at(2+4*i+l), moved(MOVBLZX, b.at(66+i), 8-2*l, 3<<8))
		})
		return negate(x, minus(b.at(34+4*i)))
	}
}

func codesIQ3XXS(b block) func(i int) reg.VecVirtual {
	points, signs := table("latticeIQ3XXS"), table("evenSigns")
	return func(i int) reg.VecVirtual {
		x := eights(points, func(l int) reg.GPVirtual { return byteAt(b.at(2+8*i+l), nil) })
		return negate(x, evenMinus(signs, b.at(66+4*i)))
	}
}

func codesIQ3S(b block) func(i int) reg.VecVirtual {
	points := table("latticeIQ3S")
	return func(i int) reg.VecVirtual {
		x := eights(points, func(l int) reg.GPVirtual {
			return byteAt(b.at(2+8*i+l), moved(MOVBLZX, b.at(66+i), 8-l, 1<<8))
		})
		return negate(x, minus(b.at(74+4*i)))
	}
}

// codesIQ1S: the table has 8 times the coordinates. 1 is added, or subtracted where bit 15 is 1.
func codesIQ1S(b block) func(i int) reg.VecVirtual {
	points := table("latticeIQ1")
	return func(i int) reg.VecVirtual {
		word, shift := b.at(34+2*i), YMM()
		x := fours(points, func(l int) reg.GPVirtual {
			return byteAt(b.at(2+4*i+l), moved(MOVWLZX, word, 8-3*l, 7<<8))
		})
		VPBROADCASTW(word, shift)
		VPSRAW(operand.U8(15), shift, shift)
		VPOR(emit.AVX2.All(1), shift, shift)
		VPADDB(shift, x, x)
		return x
	}
}

func codesIQ1M(b block) func(i int) reg.VecVirtual {
	points := table("latticeIQ1")
	var bits []uint16 // the signs of the shifts
	for l := range 16 {
		bits = append(bits, 8<<(l/4*4))
	}
	return func(i int) reg.VecVirtual {
		word, shift := b.at(32+2*i), YMM()
		x := fours(points, func(l int) reg.GPVirtual {
			return byteAt(b.at(4*i+l), moved(MOVWLZX, word, 8-4*l, 7<<8))
		})
		VPBROADCASTW(word, shift)
		VPAND(emit.Const(bits...), shift, shift)
		VPCMPEQW(emit.Const(bits...), shift, shift)
		VPOR(emit.AVX2.All(1), shift, shift)
		VPADDB(shift, x, x)
		return x
	}
}

// odds are 2x+1 for bytes.
func odds(x reg.VecVirtual) (subs, mins reg.VecVirtual) {
	VPADDB(x, x, x)
	VPOR(emit.AVX2.All(1), x, x)
	return x, nil
}

// oddNibbles are n sub-scales from nibbles.
func oddNibbles(at, n int) func(b block) (subs, mins reg.VecVirtual) {
	return func(b block) (subs, mins reg.VecVirtual) {
		low, high := XMM(), XMM()
		if n == 16 {
			VMOVQ(b.at(at), low)
		} else {
			VMOVD(b.at(at), low)
		}
		VPSRLW(operand.Imm(4), low, high)
		VPUNPCKLBW(high, low, low)
		VPAND(emit.AVX2.All(15), low, low)
		return odds(low)
	}
}

// narrowed are 8 dwords as 8 bytes.
func narrowed(x reg.VecVirtual) reg.VecVirtual {
	low, high := XMM(), XMM()
	VEXTRACTI128(operand.U8(1), x, high)
	VPACKUSDW(high, x.AsX(), low)
	VPACKUSWB(low, low, low)
	return low
}

// subsIQ2XXS: the high 4 bits of 8 qwords.
func subsIQ2XXS(b block) (subs, mins reg.VecVirtual) {
	low, high := emit.AVX2.Load(b.at(2)), emit.AVX2.Load(b.at(34))
	VPSRLQ(operand.Imm(60), low, low)
	VPSRLQ(operand.Imm(60), high, high)
	VPSLLQ(operand.Imm(32), high, high)
	VPOR(high, low, low)
	order := emit.AVX2.Load(emit.Const[uint32](0, 2, 4, 6, 1, 3, 5, 7))
	VPERMD(low, order, low)
	return odds(narrowed(low))
}

// subsIQ3XXS: the high 4 bits of 8 dwords.
func subsIQ3XXS(b block) (subs, mins reg.VecVirtual) {
	v := emit.AVX2.Load(b.at(66))
	VPSRLD(operand.Imm(28), v, v)
	return odds(narrowed(v))
}

// subsIQ1S: bits 12 to 14 of 8 words.
func subsIQ1S(b block) (subs, mins reg.VecVirtual) {
	v := XMM()
	VMOVDQU(b.at(34), v)
	VPSLLW(operand.Imm(1), v, v)
	VPSRLW(operand.Imm(13), v, v)
	VPACKUSWB(v, v, v)
	return odds(v)
}

// subsIQ1M: 4 times 3 bits of 4 words.
func subsIQ1M(b block) (subs, mins reg.VecVirtual) {
	var order []uint8
	var factors []uint16
	for i := range 16 {
		order = append(order, uint8(i/4*2), uint8(i/4*2+1))
		factors = append(factors, 1<<(13-3*(i%4)))
	}
	v, high := YMM(), XMM()
	VPBROADCASTQ(b.at(48), v)
	VPSHUFB(emit.Const(order...), v, v)
	VPMULLW(emit.Const(factors...), v, v)
	VPSRLW(operand.Imm(13), v, v)
	VEXTRACTI128(operand.U8(1), v, high)
	VPACKUSWB(high, v.AsX(), v.AsX())
	return odds(v.AsX().(reg.VecVirtual))
}

// eighth and quarter are the scale divided by 8 and by 4.
func eighth(b block) reg.VecVirtual  { return divided(b.at(0), 0x3e000000) }
func quarter(b block) reg.VecVirtual { return divided(b.at(0), 0x3e800000) }

// divided is F16 times a float32.
func divided(d operand.Op, factor uint32) reg.VecVirtual {
	v := XMM()
	if r, ok := d.(reg.GPVirtual); ok {
		VMOVD(r, v)
	} else {
		VPBROADCASTW(d, v)
	}
	VCVTPH2PS(v, v)
	VMULSS(emit.Const(factor), v, v)
	return v
}

// scaleIQ1M: the high 4 bits of 4 words.
func scaleIQ1M(b block) reg.VecVirtual {
	d := moved(MOVWLZX, b.at(48), -12, 0)
	for w := 1; w < 4; w++ {
		ORL(moved(MOVWLZX, b.at(48+2*w), 4*w-12, 15<<(4*w)), d)
	}
	return divided(d, 0x3e000000)
}
