package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AVX-VNNI multiplies vectors of 32 bytes like AVX2, but adds 4 products to a dword in one
// instruction. So there are no words that could overflow, and codes of 8 bits stay bytes.

// bytes2 emits the dot products of a group. Each half of a block has sums of its own, so that
// VPDPBUSD waits less for the one before.
func (l *lowbit) bytes2() func() reg.VecVirtual {
	if l.split {
		l.following = emit.AVX2.Vectors(2)
	}
	l.planes = emit.NewPlanes(l.isa, l.bits, l.flip(), false, len(l.following))
	block := func(sums ...[]reg.VecVirtual) { // of the halves
		for unit := range 2 {
			var acts reg.VecVirtual
			l.planes.Unpack(l.at(unit*l.unitBytes()), func(v int, codes reg.VecVirtual) {
				half, i := v/2, v%2 // columns of the unit, rows of the panel
				if i == 0 {
					acts = YMM()
					VPBROADCASTQ(l.act(8*unit+16*half), acts)
				}
				l.isa.Dot(acts, codes, sums[half][i])
			})
		}
	}
	return func() reg.VecVirtual {
		sums, second := l.start2(2), emit.AVX2.Vectors(2)
		l.clear(second)
		l.eachBlock2(func() { block(sums, second) }, func() { block(sums, l.following) })
		for i, s := range second {
			VPADDD(s, sums[i], sums[i])
		}
		t := emit.AVX2.PairSums(sums[0], sums[1])
		VPERMQ(operand.U8(0b11_01_10_00), t, t)
		return t
	}
}

// qsi8cxpVNNI has 8 columns of the 4 rows in a vector, or 4 columns in each half.
func qsi8cxpVNNI(columns int) {
	k := qsi8cxp(emit.AVXVNNI, columns)
	flip := emit.AVX2.Load(emit.AVX2.All(0x80))
	var spread reg.VecVirtual
	if columns == 4 {
		spread = spreadDwords()
	}
	k.eachPanel(func() {
		sums := emit.AVX2.Vectors(4)
		for _, s := range sums {
			VPXOR(s, s, s)
		}
		k.oneGroup(func() {
			k.eachBlock(32*rows8, func() {
				for i, s := range sums {
					codes, acts := YMM(), YMM()
					VPXOR(k.at(32*i), flip, codes)
					VPBROADCASTQ(k.act(8*i), acts)
					if columns == 4 {
						VPSHUFB(spread, acts, acts)
					}
					emit.AVXVNNI.Dot(acts, codes, s)
				}
			})
		})
		for _, s := range sums[1:] {
			VPADDD(s, sums[0], sums[0])
		}
		t := sums[0]
		if columns == 4 {
			t = addLanes(t)
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
