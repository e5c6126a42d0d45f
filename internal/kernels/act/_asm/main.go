// The command _asm writes the AVX2 implementation of package act: go generate here, or
//
//	go run . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg act
//
// It is a module of its own so that users of gq never see its dependencies.
package main

//go:generate go run . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg act

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("!purego")
	quantizeAway()
	quantizeEven()
	groupSums()
	Generate()
}

// quantizeAway adds the largest float32 below 1/2, with the value's sign, and truncates. If the
// fraction is 1/2 or more, the sum rounds to the next integer or lies above it; if the fraction is
// less, the sum stays below. Adding 1/2 itself would turn 0.49999997 into 1.
func quantizeAway() {
	TEXT("quantizeAwayBlocks", NOSPLIT, "func(q *int8, x, factors *float32, blocks, block int, zero int32)")
	Doc("quantizeAwayBlocks is quantizeAwayGeneric with AVX2 for whole blocks, block a multiple of 32, both counts positive.")
	Pragma("noescape")
	sign, half, word := YMM(), YMM(), GP32()
	VPCMPEQD(sign, sign, sign)
	VPSLLD(operand.Imm(31), sign, sign)
	MOVL(operand.U32(0x3effffff), word)
	VMOVD(word, half.AsX())
	VPBROADCASTD(half.AsX(), half)
	zero := YMM()
	VMOVD(Load(Param("zero"), GP32()), zero.AsX())
	VPBROADCASTW(zero.AsX(), zero)
	quantize(func(v reg.VecVirtual) {
		t := YMM()
		VANDPS(sign, v, t)
		VORPS(half, t, t)
		VADDPS(t, v, v)
		VCVTTPS2DQ(v, v)
	}, zero)
}

// quantizeEven rounds by conversion to int32, which follows MXCSR: to nearest even, as Go sets it.
func quantizeEven() {
	TEXT("quantizeEvenBlocks", NOSPLIT, "func(q *int8, x, factors *float32, blocks, block int)")
	Doc("quantizeEvenBlocks is quantizeEvenGeneric with AVX2 for whole blocks, block a multiple of 32, both counts positive.")
	Pragma("noescape")
	quantize(func(v reg.VecVirtual) { VCVTPS2DQ(v, v) }, nil)
}

// quantize loops over blocks and over 32 values at a time. round turns them into integers in place,
// and zero is added to each word of the result.
func quantize(round func(v reg.VecVirtual), zero reg.VecVirtual) {
	q := Load(Param("q"), GP64())
	x := Load(Param("x"), GP64())
	factors := Load(Param("factors"), GP64())
	blocks := Load(Param("blocks"), GP64())
	block := Load(Param("block"), GP64())
	n, factor := GP64(), YMM()
	// Packing works in halves: one piece (4 codes) of each of 4 vectors goes to the lower half,
	// then one piece of each to the upper half.
	order := YMM()
	VPMOVZXBD(pieces(), order)

	Label("block")
	VBROADCASTSS(operand.Mem{Base: factors}, factor)
	ADDQ(operand.Imm(4), factors)
	MOVQ(block, n)

	Label("values")
	var v [4]reg.VecVirtual
	for i := range v {
		v[i] = YMM()
		VMULPS(operand.Mem{Base: x, Disp: 32 * i}, factor, v[i])
		round(v[i])
	}
	for i := 0; i < 4; i += 2 {
		VPACKSSDW(v[i+1], v[i], v[i])
		if zero != nil {
			VPADDSW(zero, v[i], v[i])
		}
	}
	VPACKSSWB(v[2], v[0], v[0])
	VPERMD(v[0], order, v[0])
	VMOVDQU(v[0], operand.Mem{Base: q})
	ADDQ(operand.Imm(128), x)
	ADDQ(operand.Imm(32), q)
	SUBQ(operand.Imm(32), n)
	JNE(operand.LabelRef("values"))
	DECQ(blocks)
	JNE(operand.LabelRef("block"))
	VZEROUPPER()
	RET()
}

var order operand.Mem

func pieces() operand.Mem {
	if order.Symbol.Name == "" {
		order = GLOBL("pieces", RODATA|NOPTR)
		for i, p := range []byte{0, 4, 1, 5, 2, 6, 3, 7} {
			DATA(i, operand.U8(p))
		}
	}
	return order
}

// groupSums adds codes + 128, which VPSADBW can, and subtracts 128 each at the end.
func groupSums() {
	TEXT("groupSumsBlocks", NOSPLIT, "func(dst *int32, q *int8, groups, group int)")
	Doc("groupSumsBlocks is groupSumsGeneric with AVX2 for whole groups, group a multiple of 16, both counts positive.")
	Pragma("noescape")
	dst := Load(Param("dst"), GP64())
	q := Load(Param("q"), GP64())
	groups := Load(Param("groups"), GP64())
	group := Load(Param("group"), GP64())
	n, less, total := GP64(), GP64(), GP64()
	MOVQ(group, less)
	SHLQ(operand.Imm(7), less)
	flip, none := XMM(), XMM()
	VPXOR(none, none, none)
	VPCMPEQD(flip, flip, flip)
	VPSLLW(operand.Imm(15), flip, flip)
	VPACKSSWB(flip, flip, flip) // -32768 as a byte: -128

	Label("group")
	MOVQ(group, n)
	sum, t := XMM(), XMM()
	VPXOR(sum, sum, sum)
	Label("codes")
	VPXOR(operand.Mem{Base: q}, flip, t)
	VPSADBW(none, t, t)
	VPADDQ(t, sum, sum)
	ADDQ(operand.Imm(16), q)
	SUBQ(operand.Imm(16), n)
	JNE(operand.LabelRef("codes"))
	VPSHUFD(operand.Imm(0b01_00_11_10), sum, t)
	VPADDQ(t, sum, sum)
	VMOVQ(sum, total)
	SUBQ(less, total)
	MOVL(total.As32(), operand.Mem{Base: dst})
	ADDQ(operand.Imm(4), dst)
	DECQ(groups)
	JNE(operand.LabelRef("group"))
	VZEROUPPER()
	RET()
}
