package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// MXFP4 and NVFP4 have the numbers of E2M1, doubled (kvalues_mxfp4 of ggml/src/ggml-common.h), and
// halved scales: powers of two, or E4M3 without its sign.

// fp4Offset makes codes unsigned.
const fp4Offset = 16

var fp4 = []int8{16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4}

func holdFP4() []operand.Mem { return append(holdNibbles(), lookUpTable(fp4)) }

// powers are the scales of 8 rows: see unpackMXFP4 of formats/gguf.
func powers(row func(int) block, _ int) reg.VecVirtual {
	bytes, d := XMM(), YMM()
	VPXOR(bytes, bytes, bytes)
	for r := range smallRows {
		VPINSRB(operand.U8(r), row(r).at(0), bytes, bytes)
	}
	VPMOVZXBD(bytes, d)
	return halvedPowers(d)
}

func power(b block) reg.VecVirtual {
	e, d := GP32(), XMM()
	MOVBLZX(b.at(0), e)
	VMOVD(e, d)
	return halvedPowers(d)
}

// halvedPowers turns exponents e into 2^(e-128). 2^-128 and 2^-127 are subnormal, 1<<21 << e. The
// exponents of other numbers are e-1, in bits that are larger; e-1 is negative or 0 in subnormals.
func halvedPowers(e reg.VecVirtual) reg.VecVirtual {
	small, at := emit.Like(e), emit.Like(e)
	VPMINUD(emit.AVX2.All32(2), e, at)
	VMOVDQU(emit.AVX2.All32(1<<21), small)
	VPSLLVD(at, small, small)
	VPSLLD(operand.Imm(23), e, e)
	VPSUBD(emit.AVX2.All32(1<<23), e, e)
	VPMAXSD(small, e, e)
	return e
}

// nvCodes are 32 codes of two groups. A group is 8 low nibbles, then the high nibbles.
func nvCodes(b block) reg.VecVirtual {
	v := broadcast16(b.at(4))
	VPERMQ(operand.U8(0b01_01_00_00), v, v)
	VPSRLVD(constant(nvShifts()), v, v)
	return lookUp(fp4, and(15, v))
}

func nvShifts() operand.Mem { return emit.Const[uint32](0, 0, 4, 4, 0, 0, 4, 4) }

func holdNV() []operand.Mem {
	return []operand.Mem{nvShifts(), emit.AVX2.All(15), lookUpTable(fp4)}
}

// nvBytes are the scales of 8 rows' blocks, a dword for each row.
var nvBytes reg.VecVirtual

// nvScales are the scales of a group of 8 rows. Group 0 comes first.
func nvScales(row func(int) block, group int) reg.VecVirtual {
	if group == 0 {
		var x [2]reg.VecVirtual
		for i := range x {
			x[i] = XMM()
			VMOVD(row(4*i).at(0), x[i])
			for r := 1; r < 4; r++ {
				VPINSRD(operand.U8(r), row(4*i+r).at(0), x[i], x[i])
			}
		}
		nvBytes = joined(x)
	}
	d := YMM()
	VPSRLD(operand.U8(8*group), nvBytes, d)
	VPAND(emit.AVX2.All32(0xff), d, d)
	return halvedE4M3(d)
}

// nvScale are the four scales of a block.
func nvScale(b block) reg.VecVirtual {
	d := XMM()
	VPMOVZXBD(b.at(0), d)
	return halvedE4M3(d)
}

// halvedE4M3 is nvScale of formats/gguf. The bits of E4M3 are a float32 whose exponent is 120 too
// small, even of a subnormal.
func halvedE4M3(v reg.VecVirtual) reg.VecVirtual {
	const scale = (119 + 127) << 23 // 2^119 as float32
	nan := emit.Like(v)
	VPCMPEQD(emit.AVX2.All32(0x7f), v, nan)
	VPAND(emit.AVX2.All32(0x7f), v, v)
	VPANDN(v, nan, v)
	VPSLLD(operand.Imm(20), v, v)
	VMULPS(emit.AVX2.All32(scale), v, v)
	return v
}
