package main

import (
	mathbits "math/bits"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var (
	rowArgs    = emit.ParseStruct("../../ggml/row.go", "RowArgs")
	unpackArgs = emit.ParseStruct("../../ggml/unpack.go", "UnpackArgs")
)

// block is a block of weights in memory.
type block struct {
	base  reg.Register
	index reg.Register // of a row: its distance from base, times scale
	scale uint8
	disp  int // of the columns to compute with
}

// at is the memory at an offset in the block.
func (b block) at(offset int) operand.Mem {
	return operand.Mem{Base: b.base, Index: b.index, Scale: b.scale, Disp: b.disp + offset}
}

// load returns a register with a field of the arguments.
func load(args emit.Struct, base reg.Register, name string) reg.GPVirtual {
	r := GP64()
	MOVQ(args.Field(base, name), r)
	return r
}

// copyOf is a register with the value of another.
func copyOf(r reg.Register) reg.GPVirtual {
	c := GP64()
	MOVQ(r, c)
	return c
}

// zero is a new register of zeros.
func zero() reg.VecVirtual {
	v := YMM()
	VPXOR(v, v, v)
	return v
}

// broadcast16 is a vector with 16 bytes of memory in both lanes.
func broadcast16(m operand.Mem) reg.VecVirtual {
	v := YMM()
	VBROADCASTI128(m, v)
	return v
}

// held are the constants that the current function holds in registers, by their names.
var held map[string]reg.VecVirtual

// hold loads constants into registers, for the rest of the function: a CPU loads fewer vectors in a
// cycle than it computes.
func hold(isa emit.ISA, constants ...operand.Mem) {
	held = map[string]reg.VecVirtual{}
	for _, m := range constants {
		held[m.Symbol.Name] = isa.Load(m)
	}
}

// constant is the register that holds a constant, or its memory.
func constant(m operand.Mem) operand.Op {
	if r, ok := held[m.Symbol.Name]; ok {
		return r
	}
	return m
}

// and returns x & mask, in x.
func and(mask uint8, x reg.VecVirtual) reg.VecVirtual {
	VPAND(constant(emit.AVX2.All(mask)), x, x)
	return x
}

// shifted is x with its words shifted to the right, or to the left if by is negative.
func shifted(by int, x reg.VecVirtual) reg.VecVirtual {
	y := YMM()
	switch {
	case by > 0:
		VPSRLW(operand.U8(by), x, y)
	case by < 0:
		VPSLLW(operand.U8(-by), x, y)
	default:
		VMOVDQA(x, y)
	}
	return y
}

// bits is a vector with some bits of each byte of x, moved to the right, or to the left if by is
// negative.
func bits(by int, mask uint8, x reg.VecVirtual) reg.VecVirtual {
	if by == 0 {
		y := YMM()
		VPAND(constant(emit.AVX2.All(mask)), x, y)
		return y
	}
	return and(mask, shifted(by, x))
}

// nibbles are 16 bytes as 32 codes: the low nibbles, then the high nibbles. A shift of the lanes by
// different counts takes four times as long on some CPUs (Zen 1).
func nibbles(m operand.Mem) reg.VecVirtual {
	low, high, v := XMM(), XMM(), YMM()
	VMOVDQU(m, low)
	VPSRLW(operand.Imm(4), low, high)
	VINSERTI128(operand.U8(1), high, low.AsY(), v)
	return and(15, v)
}

// lookUp replaces codes of 4 bits by numbers of a table.
func lookUp(table []int8, codes reg.VecVirtual) reg.VecVirtual {
	v := YMM()
	if r, ok := held[lookUpTable(table).Symbol.Name]; ok {
		VPSHUFB(codes, r, v)
		return v
	}
	VMOVDQU(lookUpTable(table), v)
	VPSHUFB(codes, v, v)
	return v
}

// lookUpTable has a table in both lanes.
func lookUpTable(table []int8) operand.Mem {
	var b []uint8
	for range 2 {
		for _, x := range table {
			b = append(b, uint8(x))
		}
	}
	return emit.Const(b...)
}

// iq4 are the numbers of IQ4_NL and IQ4_XS (kvalues_iq4nl of ggml/src/ggml-common.h).
var iq4 = []int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// words multiplies 32 codes with activations: sums of 2 products in 16 words. Codes of 8 bits give
// their signs to the activations, -127 to 127; if these are in a register, it is changed.
func words(codes reg.VecVirtual, signed bool, acts operand.Op) reg.VecVirtual {
	w := YMM()
	if !signed {
		VPMADDUBSW(acts, codes, w)
		return w
	}
	a, loaded := acts.(reg.VecVirtual)
	if !loaded {
		a = YMM()
		VMOVDQU(acts, a)
	}
	VPSIGNB(codes, a, a)
	VPABSB(codes, w)
	VPMADDUBSW(a, w, w)
	return w
}

// times multiplies dwords by a constant.
func times(factor int, x reg.VecVirtual) {
	if shift := mathbits.TrailingZeros(uint(factor)); factor != 1<<shift {
		VPMULLD(emit.AVX2.All32(uint32(factor)), x, x)
	} else if shift > 0 {
		VPSLLD(operand.U8(shift), x, x)
	}
}

// store8 writes 32 codes, plus more, as 4 chunks of 8 codes, and moves to.
func store8(codes, more reg.VecVirtual, to, stride reg.Register) {
	VPADDB(more, codes, codes)
	high := XMM()
	VEXTRACTI128(operand.U8(1), codes, high)
	for _, half := range []reg.Register{codes.AsX(), high} {
		VMOVQ(half, operand.Mem{Base: to})
		VMOVHPS(half, operand.Mem{Base: to, Index: stride, Scale: 1})
		LEAQ(operand.Mem{Base: to, Index: stride, Scale: 2}, to)
	}
}

// scatter writes dwords from memory to places that are step bytes apart, and moves to.
func scatter(from operand.Mem, n int, to, step reg.Register) {
	for i := range n {
		x := GP32()
		MOVL(from.Offset(4*i), x)
		MOVL(x, operand.Mem{Base: to})
		ADDQ(step, to)
	}
}

// unpackLoop emits the loop of an Unpack over blocks of some bytes. body writes the numbers of the
// block at the registers of the arguments' pointers.
func unpackLoop(name, doc string, size int, pointers []string, offset int, body func(b block, more reg.VecVirtual, stride, step reg.Register, at map[string]reg.Register)) {
	emit.Func(name, "func(a *UnpackArgs)", doc)
	hold(emit.AVX2)
	args := GP64()
	Load(Param("a"), args)
	data, blocks := load(unpackArgs, args, "Data"), load(unpackArgs, args, "Blocks")
	stride, step := load(unpackArgs, args, "Stride"), load(unpackArgs, args, "Step")
	ahead := load(unpackArgs, args, "Ahead")
	at := map[string]reg.Register{"Codes": load(unpackArgs, args, "Codes")}
	for _, p := range pointers {
		at[p] = load(unpackArgs, args, p)
	}
	more := YMM()
	VPBROADCASTB(unpackArgs.Field(args, "Offset"), more)
	if offset != 0 {
		VPSUBB(emit.AVX2.All(uint8(offset)), more, more)
	}
	Label("block")
	for i := 0; i < size; i += 64 {
		PREFETCHT0(operand.Mem{Base: data, Index: ahead, Scale: 1, Disp: i})
	}
	body(block{base: data}, more, stride, step, at)
	ADDQ(operand.U32(size), data)
	DECQ(blocks)
	JNE(operand.LabelRef("block"))
	VZEROUPPER()
	RET()
}
