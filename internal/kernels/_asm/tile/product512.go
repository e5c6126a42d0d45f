package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// product512 multiplies with panels of 16 rows. A chunk of codes is two vectors of 8 rows each. Two
// shuffles make them a vector of the first 4 columns of all 16 rows, in the order of emit.Pairs,
// and a vector of the other 4 columns. So VPDPBUSD adds 4 columns to the sums of all 16 rows, and
// its activations are one dword of memory.
func product512(r result, mr int) {
	k := begin(emit.AVX512, r, "", mr, 16)
	order, natural := emit.AVX512.Load(emit.Pairs()), emit.AVX512.Load(emit.Natural())
	// With few rows of activations there are several vectors of sums for each, so that additions do
	// not wait for each other.
	chains := min(8/mr, 4)
	sums := make([][]reg.VecVirtual, mr)
	for m := range sums {
		sums[m] = emit.AVX512.Vectors(chains)
	}
	var f []reg.VecVirtual
	if r != dots {
		f = emit.AVX512.Vectors(mr)
		for _, f := range f {
			VPXORD(f, f, f)
		}
	}
	k.eachGroup(func() {
		for m := range sums {
			for _, s := range sums[m] {
				VPXORD(s, s, s)
			}
		}
	}, func() {
		for chunk := range 2 {
			low, high := emit.AVX512.Load(k.code(128*chunk)), emit.AVX512.Load(k.code(128*chunk+64))
			first, other := ZMM(), ZMM()
			VSHUFPS(operand.U8(0b10_00_10_00), high, low, first)
			VSHUFPS(operand.U8(0b11_01_11_01), high, low, other)
			for half, codes := range []reg.VecVirtual{first, other} {
				for m := range mr {
					VPDPBUSD_BCST(k.act(chunk, m).Offset(4*half), codes, sums[m][(2*chunk+half)%chains])
				}
			}
		}
	}, func() {
		zeros, scales := ZMM(), ZMM()
		VPERMD(operand.Mem{Base: k.zeros}, order, zeros)
		if r != dots {
			VPERMPS(operand.Mem{Base: k.scales}, order, scales)
		}
		t := func(m int) reg.VecVirtual {
			list := sums[m]
			for n := len(list) / 2; n > 0; n /= 2 {
				for i := range n {
					VPADDD(list[n+i], list[i], list[i])
				}
			}
			t := list[0]
			if r == shifted {
				VPSLLVD_BCST(k.arg("Shift"), t, t)
			}
			z := ZMM()
			VPMULLD_BCST(k.sum(m), zeros, z)
			VPSUBD(z, t, t)
			return t
		}
		if r != dots {
			for m := range mr {
				x := t(m)
				VCVTDQ2PS(x, x)
				VFMADD231PS(x, scales, f[m])
			}
			return
		}
		k.eachRow(k.out, func(m int, to operand.Mem) {
			x := t(m)
			VPERMD(x, natural, x)
			VMOVDQU32(x, to)
		})
	})
	if r != dots {
		rowSums, bias := emit.AVX512.Load(k.perOutput("RowSums")), emit.AVX512.Load(k.perOutput("Bias"))
		k.eachRow(k.arg("Out"), func(m int, to operand.Mem) {
			VPERMPS(f[m], natural, f[m])
			VFMADD231PS_BCST(k.perRow("NegZero", m), rowSums, f[m])
			VMULPS_BCST(k.perRow("Rec", m), f[m], f[m])
			VADDPS(bias, f[m], f[m])
			emit.AVX512.Canonical(f[m])
			VMOVUPS(f[m], to)
		})
	}
	VZEROUPPER()
	RET()
}
