package main

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tiled is a kernel of 4-bit codes in any tile, or of qsu2cxp, one panel of 4 or 8 rows at a time,
// with vectors of 32 bytes in all instruction sets. Numbers of the rows are in vectors of 16 or 32
// bytes.
type tiled struct {
	*kernel
	isa         emit.ISA
	nr, columns int // columns of a row that are adjacent: 4 or 8
	chains      int // VPDPBUSD: vectors for the same sums
	product     func() reg.VecVirtual
	actScales   reg.GPVirtual
	actSums     reg.GPVirtual
}

// tiles4 are the tiles of 4-bit codes: rows and adjacent columns.
var tiles4 = [][2]int{{4, 4}, {4, 8}, {8, 4}, {8, 8}}

// tiles emits the kernels of all 4-bit layouts in tiles that lowbit2 and lowbit512 do not serve,
// and of qsu2cxp.
func tiles(isa emit.ISA) {
	for _, t := range tiles4 {
		if nr, columns := t[0], t[1]; nr*columns < 64 {
			tileLowbit(isa, nr, columns, symmetric)
			tileLowbit(isa, nr, columns, zeros)
			tileQSI4CXP(isa, nr, columns)
		}
	}
	for _, t := range tiles4 {
		tileF16(isa, t[0], t[1])
	}
	tileQAI4(isa, 4, 4)
	tileQAI4(isa, 4, 8)
	tileQSU2(isa)
}

func newTiled(isa emit.ISA, name, layout, args string, nr, columns int) *tiled {
	name += fmt.Sprintf("Tile%dx%d%s", nr, 2*columns, isa.Suffix())
	doc := fmt.Sprintf("%s is the product of %s panels %dx%dx2.", name, layout, nr, 2*columns)
	t := &tiled{kernel: begin(name, doc, args, nr), isa: isa, nr: nr, columns: columns, chains: 2}
	t.product = t.nibbles()
	return t
}

// vector is a new register of a number for each row.
func (t *tiled) vector() reg.VecVirtual {
	if t.nr == 4 {
		return XMM()
	}
	return YMM()
}

// words collects products of codes and activations in one vector of sums.
type words struct {
	t    *tiled
	sums []reg.VecVirtual // VPDPBUSD: they take turns, because each one waits for the one before
	next int
	word reg.VecVirtual // AVX2: products of pairs that are not in the sums yet
}

func (t *tiled) newWords() *words {
	n := 1
	if t.isa != emit.AVX2 {
		n = t.chains
	}
	w := &words{t: t, sums: emit.AVX2.Vectors(n)}
	for _, s := range w.sums {
		VPXOR(s, s, s)
	}
	return w
}

// multiply adds a vector of products: 4 adjacent products of unsigned codes to a dword.
func (w *words) multiply(acts, codes reg.VecVirtual) {
	if w.t.isa != emit.AVX2 {
		w.t.isa.Dot(acts, codes, w.sums[w.next%len(w.sums)])
		w.next++
		return
	}
	VPMADDUBSW(acts, codes, codes)
	if w.word == nil {
		w.word = codes
	} else {
		VPADDW(codes, w.word, w.word)
	}
}

// endBlock adds the words to the sums. They are at most 8 sums of two products of 4-bit codes:
// 30,720.
func (w *words) endBlock() {
	if w.word != nil {
		VPMADDWD(emit.Ones(), w.word, w.word)
		VPADDD(w.word, w.sums[0], w.sums[0])
		w.word = nil
	}
}

// sum adds up the sums of a group.
func (w *words) sum() reg.VecVirtual {
	for n := len(w.sums); n > 1; n /= 2 {
		for i := range n / 2 {
			VPADDD(w.sums[i+n/2], w.sums[i], w.sums[i])
		}
	}
	return w.sums[0]
}

// nibbles emits the setup of 4-bit codes. The function that it returns emits the dot products of a
// group, of codes q + 8.
func (t *tiled) nibbles() func() reg.VecVirtual {
	flip, low := YMM(), YMM()
	VMOVDQU(emit.AVX2.All(0x88), flip)
	VMOVDQU(emit.AVX2.All(0x0f), low)
	var spread reg.VecVirtual
	if t.nr == 4 && t.columns == 4 {
		spread = spreadDwords()
	}
	return func() reg.VecVirtual {
		sums := make([]*words, max(1, t.nr*t.columns/32)) // of 32 bytes of rows
		for i := range sums {
			sums[i] = t.newWords()
		}
		t.eachBlock(16*t.nr, func() {
			var acts [2]reg.VecVirtual // for the low and the high nibbles
			for i := range t.nr / 2 {
				column := 32 * i / t.nr // the first of the low nibbles
				if i%len(sums) == 0 {
					acts = [2]reg.VecVirtual{t.activations(column, spread), t.activations(column+16, spread)}
				}
				codes, high := YMM(), YMM()
				VPXOR(t.at(32*i), flip, codes)
				VPSRLW(operand.Imm(4), codes, high)
				VPAND(low, codes, codes)
				VPAND(low, high, high)
				sum := sums[i%len(sums)]
				sum.multiply(acts[0], codes)
				sum.multiply(acts[1], high)
			}
			for _, s := range sums {
				s.endBlock()
			}
		})
		return t.rows(sums)
	}
}

// spreadDwords is the order that puts the first dword of 8 bytes into all dwords of the first lane,
// and the second dword into all dwords of the second lane.
func spreadDwords() reg.VecVirtual {
	var v []uint8
	for i := range 32 {
		v = append(v, uint8(i/16*4+i%4))
	}
	return emit.AVX2.Load(emit.Const(v...))
}

// activations are the activations from a column on that meet 32 bytes of codes.
func (t *tiled) activations(column int, spread reg.VecVirtual) reg.VecVirtual {
	acts := YMM()
	switch {
	case t.columns == 8:
		VPBROADCASTQ(t.act(column), acts)
	case t.nr == 8:
		VPBROADCASTD(t.act(column), acts)
	default: // 4 columns of 4 rows in the first lane, the next 4 in the second
		VPBROADCASTQ(t.act(column), acts)
		VPSHUFB(spread, acts, acts)
	}
	return acts
}

// rows adds up the dwords of each row.
func (t *tiled) rows(sums []*words) reg.VecVirtual {
	first := sums[0].sum()
	switch {
	case t.columns == 8 && t.nr == 8:
		all := emit.AVX2.PairSums(first, sums[1].sum())
		VPERMQ(operand.U8(0b11_01_10_00), all, all)
		return all
	case t.columns == 8:
		all := emit.AVX2.PairSums(first, first)
		VPERMQ(operand.U8(0b10_00), all, all)
		return all.AsX().(reg.VecVirtual)
	case t.nr == 8:
		return first
	}
	return addLanes(first)
}

// addLanes adds the lanes of a vector of 32 bytes.
func addLanes(x reg.VecVirtual) reg.VecVirtual {
	high := XMM()
	VEXTRACTI128(operand.U8(1), x, high)
	VPADDD(high, x.AsX(), high)
	return high
}

// broadcast is a number for all rows.
func (t *tiled) broadcast(m operand.Mem) reg.VecVirtual {
	x := t.vector()
	VPBROADCASTD(m, x)
	return x
}

// addSum adds the group's Sums.
func (t *tiled) addSum(dots reg.VecVirtual) {
	VPADDD(t.broadcast(operand.Mem{Base: t.sums}), dots, dots)
}

// store writes the outputs.
func (t *tiled) store(f reg.VecVirtual) {
	emit.AVX2.Canonical(f)
	VMOVUPS(f, operand.Mem{Base: t.dst})
}

func tileLowbit(isa emit.ISA, nr, columns int, v variant) {
	t := newTiled(isa, "lowbit4"+[...]string{"", "Zeros"}[v], "lowbit 4-bit"+[...]string{"", " (with zero points)"}[v], "LowbitArgs", nr, columns)
	record := 2 * nr
	t.eachPanel(func() {
		f := t.vector()
		VPXOR(f, f, f)
		t.eachGroup(func() {
			dots := t.product()
			if v == zeros {
				z := t.vector()
				VPMOVSXBD(t.at(2*nr), z)
				VPADDD(emit.AVX2.All32(8), z, z)
				VPMULLD(t.broadcast(operand.Mem{Base: t.sums}), z, z)
				VPADDD(z, dots, dots)
				record = 3 * nr
			} else {
				t.addSum(dots)
			}
			VCVTDQ2PS(dots, dots)
			scales := t.vector()
			VPMOVZXWD(t.at(0), scales)
			VPSLLD(operand.Imm(16), scales, scales)
			VFMADD231PS(dots, scales, f)
			ADDQ(operand.U32(record), t.codes)
		})
		VFMADD231PS(t.at(0), t.broadcast(t.arg("NegZero")), f)
		VMULPS(t.broadcast(t.arg("Rec")), f, f)
		VADDPS(t.at(4*nr), f, f)
		t.store(f)
	})
}

func tileQSI4CXP(isa emit.ISA, nr, columns int) {
	t := newTiled(isa, "qsi4cxp", "qsi4cxp", "ChannelArgs", nr, columns)
	t.chains = 4
	t.eachPanel(func() {
		t.oneGroup(func() {
			dots := t.product()
			t.addSum(dots)
			VPSLLD(operand.Imm(4), dots, dots)
			t.finishPerChannel(emit.AVX2, dots, func(offset int) operand.Op { return t.at(offset) })
			VMOVUPS(dots, operand.Mem{Base: t.dst})
		})
	})
}

// eachBlockGroup goes through the groups of a panel whose activations have a scale a group.
func (t *tiled) eachBlockGroup(body func(actScale, actSum operand.Mem)) {
	t.actScales, t.actSums = GP64(), GP64()
	_, sums := t.fields["ActSums"]
	MOVQ(t.arg("ActScales"), t.actScales)
	if sums {
		MOVQ(t.arg("ActSums"), t.actSums)
	}
	t.eachGroup(func() {
		body(operand.Mem{Base: t.actScales}, operand.Mem{Base: t.actSums})
		ADDQ(operand.Imm(4), t.actScales)
		if sums {
			ADDQ(operand.Imm(4), t.actSums)
		}
	})
}

func tileF16(isa emit.ISA, nr, columns int) {
	t := newTiled(isa, "f16", "qsi4c32p-f16", "BlocksArgs", nr, columns)
	t.eachPanel(func() {
		f := t.vector()
		VPXOR(f, f, f)
		t.eachBlockGroup(func(actScale, _ operand.Mem) {
			scales := t.vector()
			VCVTPH2PS(t.at(0), scales)
			VMULPS(t.broadcast(actScale), scales, scales)
			ADDQ(operand.U32(2*nr), t.codes)
			dots := t.product()
			t.addSum(dots)
			VCVTDQ2PS(dots, dots)
			VFMADD231PS(dots, scales, f)
		})
		t.store(f)
	})
}

func tileQAI4(isa emit.ISA, nr, columns int) {
	t := newTiled(isa, "qai4c32p", "qai4c32p", "QAI4Args", nr, columns)
	t.eachPanel(func() {
		f := t.vector()
		VPXOR(f, f, f)
		t.eachBlockGroup(func(actScale, actSum operand.Mem) {
			dots := t.product()
			t.addSum(dots)
			VPSLLD(operand.Imm(4), dots, dots)
			VCVTDQ2PS(dots, dots)
			VFMADD231PS(t.at(0), t.broadcast(actSum), f)
			scales := t.broadcast(actScale)
			VMULPS(t.at(4*nr), scales, scales)
			VFMADD231PS(dots, scales, f)
			ADDQ(operand.U32(8*nr), t.codes)
		})
		VADDPS(t.at(0), f, f)
		t.store(f)
	})
}

// tileQSU2 multiplies codes q + 2. 32 bytes are 16 columns of 4 rows in each lane, 4 columns in
// each pair of bits.
func tileQSU2(isa emit.ISA) {
	const nr = 4
	name := "qsu2cxp" + isa.Suffix()
	t := &tiled{kernel: begin(name, name+" is the product of qsu2cxp panels 4x4x1.", "ChannelArgs", nr), isa: isa, nr: nr, columns: 4, chains: 4}
	low := YMM()
	VMOVDQU(emit.AVX2.All(0x03), low)
	t.eachPanel(func() {
		t.oneGroup(func() {
			sum := t.newWords()
			t.eachBlock(8*nr, func() {
				codes, acts := YMM(), YMM()
				VMOVDQU(t.at(0), codes)
				VMOVDQU(t.act(0), acts)
				for i := range 4 {
					u, a := YMM(), YMM()
					if i == 0 {
						VPAND(low, codes, u)
					} else {
						VPSRLW(operand.U8(2*i), codes, u)
						VPAND(low, u, u)
					}
					VPSHUFD(operand.U8(0x55*i), acts, a)
					sum.multiply(a, u)
				}
				sum.endBlock()
			})
			dots := addLanes(sum.sum())
			t.addSum(dots)
			t.finishPerChannel(emit.AVX2, dots, func(offset int) operand.Op { return t.at(offset) })
			VMOVUPS(dots, operand.Mem{Base: t.dst})
		})
	})
}
