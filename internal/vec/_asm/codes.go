package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// decode goes through blocks of an F16 scale and 32 codes, of size bytes. codes gives the codes 8 i
// to 8 i + 7 of the block at src as dwords.
func decode(name, doc string, size int, codes func(src reg.Register) (prepare func(), eight func(i int, to reg.VecVirtual))) {
	TEXT(name, NOSPLIT, "func(dst *float32, src *byte, blocks int)")
	Doc(doc)
	Pragma("noescape")
	dst := Load(Param("dst"), GP64())
	src := Load(Param("src"), GP64())
	blocks := Load(Param("blocks"), GP64())
	nan, g := YMM(), GP32()
	MOVL(operand.U32(0x7fc00000), g)
	VMOVD(g, nan.AsX())
	VPBROADCASTD(nan.AsX(), nan)
	prepare, eight := codes(src)

	Label("block")
	scale, bad := YMM(), YMM()
	MOVWLZX(operand.Mem{Base: src}, g)
	VMOVD(g, scale.AsX())
	VCVTPH2PS(scale.AsX(), scale.AsX())
	VBROADCASTSS(scale.AsX(), scale)
	VSUBPS(scale, scale, bad) // NaN if the scale is not finite
	const unordered = 3
	VCMPPS(operand.Imm(unordered), bad, bad, bad)
	VBLENDVPS(bad, nan, scale, scale)
	prepare()
	for i := range 4 {
		v := YMM()
		eight(i, v)
		VCVTDQ2PS(v, v)
		VMULPS(v, scale, v)
		VMOVUPS(v, operand.Mem{Base: dst, Disp: 32 * i})
	}
	ADDQ(operand.Imm(uint64(size)), src)
	ADDQ(operand.U32(128), dst)
	DECQ(blocks)
	JNE(operand.LabelRef("block"))
	VZEROUPPER()
	RET()
}

func decodeNibbles() {
	decode("decodeNibblesBlock", "decodeNibblesBlock is decodeNibblesGeneric with AVX2 and F16C for a positive number of blocks.", 18,
		func(src reg.Register) (func(), func(int, reg.VecVirtual)) {
			mask, eight, low, high := XMM(), XMM(), XMM(), XMM()
			bytes := func(r reg.VecVirtual, b uint32) {
				g := GP32()
				MOVL(operand.U32(b*0x01010101), g)
				VMOVD(g, r)
				VPBROADCASTD(r, r)
			}
			bytes(mask, 15)
			bytes(eight, 8)
			prepare := func() {
				VMOVDQU(operand.Mem{Base: src, Disp: 2}, low)
				VPSRLW(operand.Imm(4), low, high)
				for _, r := range []reg.VecVirtual{low, high} {
					VPAND(mask, r, r)
					VPSUBB(eight, r, r)
				}
			}
			return prepare, func(i int, to reg.VecVirtual) {
				from := []reg.VecVirtual{low, high}[i/2]
				if i%2 == 1 {
					VPSRLDQ(operand.Imm(8), from, from)
				}
				VPMOVSXBD(from, to)
			}
		})
}

func decodeBytes() {
	decode("decodeBytesBlock", "decodeBytesBlock is decodeBytesGeneric with AVX2 and F16C for a positive number of blocks.", 34,
		func(src reg.Register) (func(), func(int, reg.VecVirtual)) {
			return func() {}, func(i int, to reg.VecVirtual) { VPMOVSXBD(operand.Mem{Base: src, Disp: 2 + 8*i}, to) }
		})
}
