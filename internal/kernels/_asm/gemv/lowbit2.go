package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lowbit2 multiplies panel by panel with AVX2 or AVX-VNNI.
func lowbit2(isa emit.ISA, bits int, v variant, split bool) {
	if isa == emit.AVX2 && bits <= 3 && !split {
		lowbitSmall2(bits, v)
		return
	}
	l := newLowbit(isa, bits, v, split)
	f := YMM()
	product := l.dots2()
	l.eachPanel(func() {
		VPXOR(f, f, f)
		l.clear(l.following)
		l.eachGroup(func() {
			t := product()
			l.prefetch(l.recordBytes())
			l.addGroup2(t, f)
		})
		l.finish2(f)
	})
}

// dots2 emits the setup of the dot products of a group, and returns a function that emits them.
func (l *lowbit) dots2() func() reg.VecVirtual {
	switch {
	case l.isa == emit.AVXVNNI:
		return l.bytes2()
	case l.bits == 8:
		return l.wide2()
	}
	return l.narrow2()
}

// addGroup2 adds a group to the outputs f and goes on to the next group.
func (l *lowbit) addGroup2(dots, f reg.VecVirtual) {
	scales := YMM() // BF16 scales of 8 rows, each in the high half of a dword
	VBROADCASTI128(l.at(0), scales)
	VPSHUFB(highWords(), scales, scales)
	l.convert(dots, l.zeros2)
	if l.inverted() {
		VFNMADD231PS(dots, scales, f)
	} else {
		VFMADD231PS(dots, scales, f)
	}
	ADDQ(operand.U32(l.recordBytes()), l.codes)
}

// highWords is the order that puts 8 words, which are in both lanes, into the high halves of
// dwords.
func highWords() operand.Mem {
	var v []uint8
	for i := range 8 {
		v = append(v, 0x80, 0x80, uint8(2*i), uint8(2*i+1))
	}
	return emit.Const(v...)
}

// narrow2 emits the dot products of a group: VPMADDUBSW multiplies unsigned codes of up to 7 bits.
// Pairs of products fit 16 bits, and for small codes pairs of pairs too.
func (l *lowbit) narrow2() func() reg.VecVirtual {
	together := 1
	for together < 4 && 2*together*2*(1<<l.bits-1)*128 < 1<<15 {
		together *= 2
	}
	if l.split {
		l.following = emit.AVX2.Vectors(2)
	}
	l.planes = emit.NewPlanes(emit.AVX2, l.bits, l.flip(), false, len(l.following))
	// block adds the halves of a block to sums of rows 0..3 and 4..7. Words that go to the same sums
	// are added before they are widened.
	block := func(together int, sums ...[]reg.VecVirtual) {
		words := [2][2][]reg.VecVirtual{}
		for unit := range 2 {
			var acts reg.VecVirtual
			l.planes.Unpack(l.at(unit*l.unitBytes()), func(v int, codes reg.VecVirtual) {
				half, i := v/2, v%2 // columns of the unit, rows of the panel
				if i == 0 {
					acts = YMM()
					VPBROADCASTQ(l.act(8*unit+16*half), acts)
				}
				to := min(half, len(sums)-1)
				w, list := YMM(), &words[to][i]
				VPMADDUBSW(acts, codes, w)
				*list = append(*list, w)
				if len(*list) > 1 {
					VPADDW(w, (*list)[0], (*list)[0])
				}
				if len(*list) == together {
					VPMADDWD(emit.Ones(), (*list)[0], (*list)[0])
					VPADDD((*list)[0], sums[to][i], sums[to][i])
					*list = nil
				}
			})
		}
	}
	return func() reg.VecVirtual {
		sums := l.start2(2)
		l.eachBlock2(func() { block(together, sums) }, func() { block(min(together, 2), sums, l.following) })
		t := emit.AVX2.PairSums(sums[0], sums[1])
		VPERMQ(operand.U8(0b11_01_10_00), t, t)
		return t
	}
}

// wide2 does the same for 8-bit codes, whose products with activations do not fit 16 bits in pairs:
// it widens both. A vector of codes is a lane: 8 columns of two rows.
func (l *lowbit) wide2() func() reg.VecVirtual {
	order := YMM()
	VMOVDQU(emit.Const[uint32](0, 4, 1, 5, 2, 6, 3, 7), order)
	if l.split {
		l.following = emit.AVX2.Vectors(4)
	}
	block := func(sums ...[]reg.VecVirtual) { // of two rows each, 4 dwords for a row
		for unit := range 2 {
			var acts [2]reg.VecVirtual
			for half := range acts {
				acts[half] = YMM()
				VPBROADCASTQ(l.act(8*unit+16*half), acts[half].AsX())
				VPMOVSXBW(acts[half].AsX(), acts[half])
			}
			for lane := range 8 {
				codes, sum := YMM(), sums[lane%2][lane/2]
				VPMOVSXBW(l.at(unit*l.unitBytes()+16*lane), codes)
				VPMADDWD(acts[lane%2], codes, codes)
				VPADDD(codes, sum, sum)
			}
		}
	}
	return func() reg.VecVirtual {
		sums := l.start2(4)
		l.eachBlock2(func() { block(sums, sums) }, func() { block(sums, l.following) })
		t := emit.AVX2.PairSums(emit.AVX2.PairSums(sums[0], sums[1]), emit.AVX2.PairSums(sums[2], sums[3]))
		VPERMD(t, order, t)
		return t
	}
}

// start2 returns the sums of a group: cleared, or with the products of a split block.
func (l *lowbit) start2(n int) []reg.VecVirtual {
	sums := emit.AVX2.Vectors(n)
	if !l.split {
		l.clear(sums)
		return sums
	}
	for i, s := range sums {
		VMOVDQA(l.following[i], s)
	}
	return sums
}

// eachBlock2 goes through the blocks of a group. split adds the second half of a block to the
// following sums.
func (l *lowbit) eachBlock2(whole, split func()) {
	if l.split {
		l.eachSplitBlock(l.blockBytes(), whole, func() { l.clear(l.following) }, split)
	} else {
		l.eachBlock(l.blockBytes(), whole)
	}
}

// zeros2 loads the zero points after the scales and adds the offset.
func (l *lowbit) zeros2() reg.VecVirtual {
	z := YMM()
	VPMOVSXBD(l.at(2*rows), z)
	if offset := l.zeroOffset(); offset != 0 {
		VPADDD(emit.AVX2.All32(uint32(offset)), z, z)
	}
	return z
}

// finish2 adds the term of the activations' zero point and the biases, and writes the outputs.
func (l *lowbit) finish2(f reg.VecVirtual) {
	negZero, rec := YMM(), YMM()
	VBROADCASTSS(l.arg("NegZero"), negZero)
	VBROADCASTSS(l.arg("Rec"), rec)
	VFMADD231PS(l.at(0), negZero, f)
	VMULPS(rec, f, f)
	VADDPS(l.at(4*rows), f, f)
	l.isa.Canonical(f)
	VMOVUPS(f, operand.Mem{Base: l.dst})
}
