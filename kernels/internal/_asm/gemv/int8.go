package main

import (
	"fmt"

	"github.com/lowbit-go/gq/kernels/internal/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rows8 is the number of rows of a panel of qsi8cxp. The rows have 4 or 8 columns each in turn.
const rows8 = 4

func qsi8cxp(isa emit.ISA, columns int) *kernel {
	name := fmt.Sprintf("qsi8cxp4x%d%s", columns, isa.Suffix())
	return begin(name, fmt.Sprintf("%s is the product of qsi8cxp panels 4x%dx1.", name, columns), rows8)
}

// qsi8cxp512 multiplies two panels at a time. A vector is 8 columns of both: 32 bytes of the first
// panel and 32 of the second.
func qsi8cxp512(columns int) {
	k := qsi8cxp(emit.AVX512, columns)
	flip := emit.AVX512.Load(emit.AVX512.All(0x80))
	var spread, gather reg.VecVirtual
	if columns == 4 { // each lane has 4 columns of 4 rows: its activations go to all dwords
		var v []uint8
		for i := range 64 {
			v = append(v, uint8(i/16%2*4+i%4))
		}
		spread = emit.AVX512.Load(emit.Const(v...))
	} else {
		gather = emit.AVX512.Load(emit.Const[uint32](0, 1, 4, 5, 8, 9, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0))
	}
	k.eachPair(func() {
		sums := emit.AVX512.Vectors(4)
		for _, s := range sums {
			VPXORD(s, s, s)
		}
		k.oneGroup(func() {
			k.eachBlock(32*rows8, func() {
				for i, s := range sums {
					codes, acts := ZMM(), ZMM()
					VBROADCASTI64X4(k.at(8*rows8*i), codes)
					VINSERTI64X4(operand.U8(1), k.next(8*rows8*i), codes, codes)
					VPXORD(flip, codes, codes)
					VPBROADCASTQ(k.act(8*i), acts)
					if columns == 4 {
						VPSHUFB(spread, acts, acts)
					}
					VPDPBUSD(acts, codes, s)
				}
			})
		})
		VPADDD(sums[1], sums[0], sums[0])
		VPADDD(sums[3], sums[2], sums[2])
		VPADDD(sums[2], sums[0], sums[0])
		var t reg.VecVirtual
		if columns == 4 {
			t = ZMM()
			VSHUFI64X2(operand.U8(0b11_01_11_01), sums[0], sums[0], t)
			VSHUFI64X2(operand.U8(0b10_00_10_00), sums[0], sums[0], sums[0])
			VPADDD(sums[0], t, t)
		} else {
			t = emit.AVX512.PairSums(sums[0], sums[0])
			VPERMD(t, gather, t)
		}
		a := t.AsY().(reg.VecVirtual)
		sum := YMM()
		VPBROADCASTD(operand.Mem{Base: k.sums}, sum)
		VPADDD(sum, a, a)
		k.finishPerChannel(emit.AVX512, a, func(offset int) operand.Op {
			y := YMM()
			VBROADCASTI32X4(k.at(offset), y)
			VINSERTI32X4(operand.U8(1), k.next(offset), y, y)
			return y
		})
		VMOVUPS(a.AsX(), operand.Mem{Base: k.dst})
		VEXTRACTF128(operand.U8(1), a, operand.Mem{Base: k.nextDst})
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
