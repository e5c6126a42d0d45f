package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// productVNNI multiplies unsigned codes of any width with panels of 8 rows. A row of activations
// has two vectors of sums, of rows 0..3 and 4..7 of the panel, and up to two rows have two of each,
// so that VPDPBUSD waits less for the one before. 6 rows of activations leave no registers for
// outputs, which are on the stack between groups then. The order of outputs is the order of
// PairSums.
func productVNNI(r result, mr int) {
	k := begin(emit.AVXVNNI, r, "", mr, 8)
	chains := 1
	if mr <= 2 {
		chains = 2
	}
	sums := make([][]reg.VecVirtual, mr)
	for m := range sums {
		sums[m] = emit.AVX2.Vectors(2 * chains)
	}
	onStack := mr > 4
	var f []reg.VecVirtual
	var stack operand.Mem
	at := func(m int) operand.Mem { return stack.Offset(32 * m) }
	switch {
	case r == dots:
	case onStack:
		stack = AllocLocal(32 * mr)
		zero := YMM()
		VPXOR(zero, zero, zero)
		for m := range mr {
			VMOVUPS(zero, at(m))
		}
	default:
		f = emit.AVX2.Vectors(mr)
		for _, f := range f {
			VPXOR(f, f, f)
		}
	}
	k.eachGroup(func() {
		for m := range sums {
			for _, s := range sums[m] {
				VPXOR(s, s, s)
			}
		}
	}, func() {
		for chunk := range 2 {
			codes := []reg.VecVirtual{emit.AVX2.Load(k.code(64 * chunk)), emit.AVX2.Load(k.code(64*chunk + 32))}
			for m := range sums {
				acts := YMM()
				VPBROADCASTQ(k.act(chunk, m), acts)
				for half, c := range codes {
					k.isa.Dot(acts, c, sums[m][chunk%chains*2+half])
				}
			}
		}
	}, func() {
		zeros, scales := YMM(), YMM()
		VPERMQ(operand.U8(0b11_01_10_00), operand.Mem{Base: k.zeros}, zeros)
		if r != dots {
			VPERMQ(operand.U8(0b11_01_10_00), operand.Mem{Base: k.scales}, scales)
		}
		t := func(m int) reg.VecVirtual {
			s := sums[m]
			for i := 2; i < len(s); i++ {
				VPADDD(s[i], s[i-2], s[i-2])
			}
			t, z := emit.AVX2.PairSums(s[0], s[1]), YMM()
			if r == shifted {
				VPSLLVD(k.arg("Shift"), t, t)
			}
			VPBROADCASTD(k.sum(m), z)
			VPMULLD(zeros, z, z)
			VPSUBD(z, t, t)
			return t
		}
		if r == dots {
			k.eachRow(k.out, func(m int, to operand.Mem) {
				t := t(m)
				VPERMQ(operand.U8(0b11_01_10_00), t, t)
				VMOVDQU(t, to)
			})
			return
		}
		for m := range mr {
			t := t(m)
			VCVTDQ2PS(t, t)
			if onStack {
				VFMADD213PS(at(m), scales, t)
				VMOVUPS(t, at(m))
			} else {
				VFMADD231PS(scales, t, f[m])
			}
		}
	})
	if r != dots {
		k.eachRow(k.arg("Out"), func(m int, to operand.Mem) {
			out := YMM()
			if onStack {
				VPERMQ(operand.U8(0b11_01_10_00), at(m), out)
			} else {
				VPERMQ(operand.U8(0b11_01_10_00), f[m], out)
			}
			k.finishGroup(m, out, YMM())
			VMOVUPS(out, to)
		})
	}
	VZEROUPPER()
	RET()
}
