package main

import (
	"github.com/lowbit-go/gq/kernels/internal/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// product512 multiplies with panels of 16 rows. A chunk of codes is two vectors of 8 rows each,
// which VPDPBUSD turns into two dwords a row, of 4 columns each. At the end of a group, adding
// pairs of them brings all 16 rows into one vector, in the order of emit.Pairs.
func product512(r result, mr int) {
	k := begin(emit.AVX512, r, "", mr, 16)
	order, natural := emit.AVX512.Load(emit.Pairs()), emit.AVX512.Load(emit.Natural())
	// With few rows each chunk of a step has its own sums, so that additions do not wait for each
	// other.
	chunks := 2
	if mr == 8 {
		chunks = 1
	}
	sums := make([][2][2]reg.VecVirtual, mr) // [row][chunk][half of the panel]
	for m := range sums {
		for chunk := range chunks {
			sums[m][chunk] = [2]reg.VecVirtual{ZMM(), ZMM()}
		}
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
			for chunk := range chunks {
				for _, s := range sums[m][chunk] {
					VPXORD(s, s, s)
				}
			}
		}
	}, func() {
		for chunk := range 2 {
			low, high := emit.AVX512.Load(k.code(128*chunk)), emit.AVX512.Load(k.code(128*chunk+64))
			for m := range mr {
				acts := ZMM()
				VPBROADCASTQ(k.act(chunk, m), acts)
				VPDPBUSD(acts, low, sums[m][chunk%chunks][0])
				VPDPBUSD(acts, high, sums[m][chunk%chunks][1])
			}
		}
	}, func() {
		zeros, scales := ZMM(), ZMM()
		VPERMD(operand.Mem{Base: k.zeros}, order, zeros)
		if r != dots {
			VPERMPS(operand.Mem{Base: k.scales}, order, scales)
		}
		t := func(m int) reg.VecVirtual {
			s := sums[m][0]
			for chunk := 1; chunk < chunks; chunk++ {
				VPADDD(sums[m][chunk][0], s[0], s[0])
				VPADDD(sums[m][chunk][1], s[1], s[1])
			}
			t := emit.AVX512.PairSums(s[0], s[1])
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
