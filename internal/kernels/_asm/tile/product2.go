package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kind is a way in which AVX2 multiplies bytes: no instruction multiplies any two.
type kind int

const (
	// narrow: VPMADDUBSW multiplies unsigned codes of up to 6 bits. Four of the products with
	// activations fit 16 bits: two columns of each of a step's chunks.
	narrow kind = iota
	// single: the same for 7 bits; only two products fit 16 bits.
	single
	// wide: signed codes and activations are widened to 16 bits.
	wide
	// signs: activations of -127 to 127 take the signs of signed codes of 8 bits. Two products fit 16
	// bits. There are no zero points.
	signs
)

// product2 multiplies with panels of 8 rows.
func product2(r result, kind kind, mr int) {
	k := begin(emit.AVX2, r, [...]string{"Narrow", "Single", "Wide", "Signs"}[kind], mr, 8)
	perRow := 2 // vectors of sums of a row of activations
	if kind == wide {
		perRow = 4
	}
	sums := make([][]reg.VecVirtual, mr)
	for m := range sums {
		sums[m] = emit.AVX2.Vectors(perRow)
	}
	var f []reg.VecVirtual
	if r != dots {
		f = emit.AVX2.Vectors(mr)
		for _, f := range f {
			VPXOR(f, f, f)
		}
	}
	var ones, actScales reg.Register
	if kind == signs {
		ones = emit.AVX2.Load(emit.Ones())
	}
	if r == blocks {
		actScales = GP64()
		MOVQ(k.arg("ActScales"), actScales)
	}
	k.eachGroup(func() {
		for m := range sums {
			for _, s := range sums[m] {
				VPXOR(s, s, s)
			}
		}
	}, func() {
		switch kind {
		case wide:
			k.wideStep(sums)
		case signs:
			k.signsStep(sums, ones)
		default:
			k.narrowStep(kind, sums)
		}
	}, func() {
		t := func(m int) reg.VecVirtual {
			t := k.inOrder(sums[m])
			if r == shifted {
				VPSLLVD(k.arg("Shift"), t, t)
			}
			if kind != signs {
				z := YMM()
				VPBROADCASTD(k.sum(m), z)
				VPMULLD(operand.Mem{Base: k.zeros}, z, z)
				VPSUBD(z, t, t)
			}
			return t
		}
		switch r {
		case blocks:
			for m := range mr {
				x, s := t(m), YMM()
				VCVTDQ2PS(x, x)
				VBROADCASTSS(operand.Mem{Base: actScales, Disp: 4 * m}, s)
				VMULPS(operand.Mem{Base: k.scales}, s, s)
				VFMADD231PS(s, x, f[m])
			}
			ADDQ(operand.Imm(uint64(4*mr)), actScales)
			return
		case group, shifted:
			for m := range mr {
				x := t(m)
				VCVTDQ2PS(x, x)
				VFMADD231PS(operand.Mem{Base: k.scales}, x, f[m])
			}
			return
		}
		k.eachRow(k.out, func(m int, to operand.Mem) { VMOVDQU(t(m), to) })
	})
	if r != dots {
		k.eachRow(k.arg("Out"), func(m int, to operand.Mem) {
			if r == blocks {
				emit.AVX2.Canonical(f[m])
			} else {
				k.finishGroup(m, f[m], YMM())
			}
			VMOVUPS(f[m], to)
		})
	}
	VZEROUPPER()
	RET()
}

// finishGroup turns the sums f of the groups of row m of activations into outputs.
func (k *kernel) finishGroup(m int, f, x reg.VecVirtual) {
	VBROADCASTSS(k.perRow("NegZero", m), x)
	VFMADD231PS(k.perOutput("RowSums"), x, f)
	VBROADCASTSS(k.perRow("Rec", m), x)
	VMULPS(x, f, f)
	VADDPS(k.perOutput("Bias"), f, f)
	emit.AVX2.Canonical(f)
}

// narrowStep adds 16 columns to sums of rows 0..3 and 4..7 of the panel, two dwords a row. It loads
// the activations twice, because registers are scarce.
func (k *kernel) narrowStep(kind kind, sums [][]reg.VecVirtual) {
	for half := range 2 {
		codes := []reg.VecVirtual{emit.AVX2.Load(k.code(32 * half)), emit.AVX2.Load(k.code(64 + 32*half))}
		for m := range sums {
			words := emit.AVX2.Vectors(2)
			for chunk, w := range words {
				VPBROADCASTQ(k.act(chunk, m), w)
				VPMADDUBSW(w, codes[chunk], w)
			}
			if kind == narrow {
				VPADDW(words[1], words[0], words[0])
				words = words[:1]
			}
			for _, w := range words {
				VPMADDWD(emit.Ones(), w, w)
				VPADDD(w, sums[m][half], sums[m][half])
			}
		}
	}
}

// wideStep adds 16 columns to sums of rows 0 and 1, 2 and 3, and so on, four dwords a row.
func (k *kernel) wideStep(sums [][]reg.VecVirtual) {
	for chunk := range 2 {
		acts := emit.AVX2.Vectors(len(sums))
		for m, a := range acts {
			VPBROADCASTQ(k.act(chunk, m), a.AsX())
			VPMOVSXBW(a.AsX(), a)
		}
		for pair := range 4 {
			codes := YMM()
			VPMOVSXBW(k.code(64*chunk+16*pair), codes)
			for m := range sums {
				p := YMM()
				VPMADDWD(acts[m], codes, p)
				VPADDD(p, sums[m][pair], sums[m][pair])
			}
		}
	}
}

// signsStep is narrowStep for kind signs.
func (k *kernel) signsStep(sums [][]reg.VecVirtual, ones reg.Register) {
	for i := range 4 {
		chunk, half := i/2, i%2
		codes, sizes := emit.AVX2.Load(k.code(64*chunk+32*half)), YMM()
		VPABSB(codes, sizes)
		for m := range sums {
			w := YMM()
			VPBROADCASTQ(k.act(chunk, m), w)
			VPSIGNB(codes, w, w)
			VPMADDUBSW(w, sizes, w)
			VPMADDWD(ones, w, w)
			VPADDD(w, sums[m][half], sums[m][half])
		}
	}
}

// inOrder adds the dwords of each row.
func (k *kernel) inOrder(s []reg.VecVirtual) reg.VecVirtual {
	if len(s) == 2 {
		t := emit.AVX2.PairSums(s[0], s[1])
		VPERMQ(operand.U8(0b11_01_10_00), t, t)
		return t
	}
	t := emit.AVX2.PairSums(emit.AVX2.PairSums(s[0], s[1]), emit.AVX2.PairSums(s[2], s[3]))
	order := emit.AVX2.Load(emit.Const[uint32](0, 4, 1, 5, 2, 6, 3, 7))
	VPERMD(t, order, t)
	return t
}
