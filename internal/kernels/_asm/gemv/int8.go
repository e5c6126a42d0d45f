package main

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rows8 is the number of rows of a panel of qsi8cxp. The rows have 4 or 8 columns each in turn.
const rows8 = 4

func qsi8cxp(isa emit.ISA, columns int) *kernel {
	name := fmt.Sprintf("qsi8cxp4x%d%s", columns, isa.Suffix())
	return begin(name, fmt.Sprintf("%s is the product of qsi8cxp panels 4x%dx1.", name, columns), "ChannelArgs", rows8)
}

// qsi8cxp512 has 16 columns of the 4 rows in a vector: 8 columns in each half.
func qsi8cxp512(columns int) {
	k := qsi8cxp(emit.AVX512, columns)
	flip := emit.AVX512.Load(emit.AVX512.All(0x80))
	var v []uint8 // the column of each byte
	for i := range 64 {
		at := i/32*8 + i%8
		if columns == 4 {
			at = i/16*4 + i%4
		}
		v = append(v, uint8(at))
	}
	spread := emit.AVX512.Load(emit.Const(v...))
	k.eachPanel(func() {
		sums := emit.AVX512.Vectors(2)
		for _, s := range sums {
			VPXORD(s, s, s)
		}
		k.oneGroup(func() {
			k.eachBlock(32*rows8, func() {
				for i, s := range sums {
					codes, acts := ZMM(), ZMM()
					VPXORD(k.at(64*i), flip, codes)
					VBROADCASTI32X4(k.act(16*i), acts)
					VPSHUFB(spread, acts, acts)
					VPDPBUSD(acts, codes, s)
				}
			})
		})
		VPADDD(sums[1], sums[0], sums[0])
		high := YMM()
		VEXTRACTI64X4(operand.U8(1), sums[0], high)
		t := sums[0].AsY().(reg.VecVirtual)
		VPADDD(high, t, t)
		if columns == 4 {
			VEXTRACTI128(operand.U8(1), t, high.AsX())
			VPADDD(high.AsX(), t.AsX(), t.AsX())
		} else {
			t = emit.AVX2.PairSums(t, t)
			VPERMQ(operand.U8(0b10_00), t, t)
		}
		a, sum := t.AsX().(reg.VecVirtual), XMM()
		VPBROADCASTD(operand.Mem{Base: k.sums}, sum)
		VPADDD(sum, a, a)
		k.finishPerChannel(emit.AVX2, a, func(offset int) operand.Op { return k.at(offset) })
		VMOVUPS(a, operand.Mem{Base: k.dst})
	})
}

// qsi8cxp2 widens codes and activations to words, 16 codes at a time: 8 columns of two rows, or 4
// columns of four rows.
func qsi8cxp2(columns int) {
	k := qsi8cxp(emit.AVX2, columns)
	k.eachPanel(func() {
		sums := emit.AVX2.Vectors(2)
		for _, s := range sums {
			VPXOR(s, s, s)
		}
		k.oneGroup(func() {
			k.eachBlock(32*rows8, func() {
				var acts reg.VecVirtual
				for i := range 8 {
					switch {
					case columns == 4:
						acts = YMM()
						VPBROADCASTD(k.act(4*i), acts.AsX())
						VPMOVSXBW(acts.AsX(), acts)
					case i%2 == 0:
						acts = YMM()
						VPBROADCASTQ(k.act(4*i), acts.AsX())
						VPMOVSXBW(acts.AsX(), acts)
					}
					codes := YMM()
					VPMOVSXBW(k.at(16*i), codes)
					VPMADDWD(acts, codes, codes)
					VPADDD(codes, sums[i%2], sums[i%2])
				}
			})
		})
		var t reg.VecVirtual
		if columns == 4 { // both sums are of all rows, two dwords for each
			VPADDD(sums[1], sums[0], sums[0])
			t = emit.AVX2.PairSums(sums[0], sums[0])
			VPERMQ(operand.U8(0b10_00), t, t)
		} else { // rows 0 and 1, and rows 2 and 3: four dwords for each
			t = emit.AVX2.PairSums(sums[0], sums[1])
			t = emit.AVX2.PairSums(t, t) // rows 0 and 2 in the first lane
			high := XMM()
			VEXTRACTI128(operand.U8(1), t, high)
			VPUNPCKLDQ(high, t.AsX(), t.AsX())
		}
		a := t.AsX().(reg.VecVirtual)
		k.finishPerChannel(emit.AVX2, a, func(offset int) operand.Op { return k.at(offset) })
		VMOVUPS(a, operand.Mem{Base: k.dst})
	})
}
