package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lowbit512 multiplies panel by panel, so that a thread reads one run of memory. On a Zen 4, whose
// prefetchers follow one run at 31 GB/s, two panels at a time were read at 18 GB/s in rows of 2048
// columns. Two groups at a time fill a vector of sums.
func lowbit512(isa emit.ISA, bits int, v variant, split bool) {
	l := newLowbit(isa, bits, v, split)
	l.planes = emit.NewPlanes(emit.AVX512, bits, l.flip(), bits <= 2, 0)
	c := l.constants512()
	f := YMM()
	if split {
		l.following = emit.AVX512.Vectors(1) // of odd lanes
	}
	l.eachPanel(func() {
		l.clear(append([]reg.VecVirtual{f}, l.following...))
		l.eachTwoGroups(
			func() *record512 {
				r := &record512{sums: l.dots512()}
				l.prefetch(l.recordBytes())
				return r
			},
			func(r *record512) {
				r.load(l)
				ADDQ(operand.U32(l.recordBytes()), l.codes)
			},
			func(first, second *record512) {
				t := l.total512(first.sums, second.sums)
				l.convert(t, func() reg.VecVirtual { return first.zeros(l, c, true) })
				VPERMPS(t, c.natural, t)
				scales, high, highScales := first.scales(l, c), YMM(), YMM()
				VFMADD231PS(t.AsY(), scales.AsY(), f)
				VEXTRACTF64X4(operand.U8(1), t, high)
				VEXTRACTF64X4(operand.U8(1), scales, highScales)
				VFMADD231PS(high, highScales, f)
				ADDQ(operand.U32(l.recordBytes()), l.codes)
			},
			func(last *record512) {
				l.lastSum = true
				last.load(l)
				t := l.total512(last.sums, last.sums)
				l.convert(t, func() reg.VecVirtual { return last.zeros(l, c, false) })
				l.lastSum = false
				VPERMPS(t, c.natural, t)
				scales := YMM()
				VPMOVZXWD(last.scaleWords.AsX(), scales)
				VPSLLD(operand.U8(16), scales, scales)
				VFMADD231PS(t.AsY(), scales, f)
				ADDQ(operand.U32(l.recordBytes()), l.codes)
			},
		)
		l.finish2(f)
	})
}

// eachTwoGroups goes through the groups of a panel in twos. sums goes through the blocks of a
// group, keep leaves the first group for the second, both adds the two to the outputs. An odd
// number ends with one.
func (k *kernel) eachTwoGroups(sums func() *record512, keep func(*record512), both func(first, second *record512), one func(last *record512)) {
	group := func(path string) *record512 {
		MOVQ(k.arg("Blocks"), k.blocks)
		CMPQ(k.groups, operand.Imm(1))
		CMOVQEQ(k.arg("LastBlocks"), k.blocks)
		k.path = path
		defer func() { k.path = "" }()
		return sums()
	}
	MOVQ(k.arg("Groups"), k.groups)
	Label("groups")
	first := group("first")
	CMPQ(k.groups, operand.Imm(1))
	JE(operand.LabelRef("one"))
	keep(first)
	DECQ(k.groups)
	both(first, group("second"))
	ADDQ(operand.Imm(8), k.sums)
	DECQ(k.groups)
	JNE(operand.LabelRef("groups"))
	JMP(operand.LabelRef("end"))
	Label("one")
	one(first)
	Label("end")
}

// dots512 emits the dot products of a group: two dwords for each row, of 4 columns each. A vector
// of codes is 8 columns of the 8 rows of a panel, so VPDPBUSD makes such dwords.
//
// Codes of 1 and 2 bits stay at their place in the byte. Their products are too large by a power of
// 2 that depends on the lane, and are shifted when they are added. The sum of a row of 65,536
// columns is still below 2^31.
func (l *lowbit) dots512() reg.VecVirtual {
	even, odd := ZMM(), ZMM() // sums of the lanes
	if l.split {
		l.clear([]reg.VecVirtual{even})
		VMOVDQA64(l.following[0], odd)
	} else {
		l.clear([]reg.VecVirtual{even, odd})
	}
	block := func(sums ...reg.VecVirtual) {
		for unit := range 2 {
			acts := emit.AVX512.Vectors(2)
			VPBROADCASTQ(l.act(8*unit), acts[0])
			VPBROADCASTQ(l.act(8*unit+16), acts[1])
			l.planes.Unpack(l.at(unit*l.unitBytes()), func(half int, codes reg.VecVirtual) {
				VPDPBUSD(acts[half], codes, sums[half])
			})
		}
	}
	if l.split {
		l.eachSplitBlock(l.blockBytes(), func() { block(even, odd) }, func() { l.clear(l.following) }, func() { block(even, l.following[0]) })
	} else {
		l.eachBlock(l.blockBytes(), func() { block(even, odd) })
	}
	if l.planes.Place() != nil {
		VPSLLD(operand.U8(l.bits), odd, odd) // the codes of odd lanes are lower in a byte
	}
	VPADDD(odd, even, even)
	return even
}

// total512 adds up the dwords of each row of two groups, or panels, in the order of PairSums.
func (l *lowbit) total512(first, second reg.VecVirtual) reg.VecVirtual {
	t := emit.AVX512.PairSums(first, second)
	if place := l.planes.Place(); place != nil {
		VPSRAVD(place, t, t)
	}
	return t
}

// constants512 are registers that hold constants in the whole function.
type constants512 struct {
	scaleWords reg.VecVirtual // source word of each word of two groups' scales
	highWords  reg.OpmaskVirtual
	// Source byte of each byte of two groups' zero points, in the order of PairSums.
	zeroBytes reg.VecVirtual
	offset    reg.VecVirtual
	natural   reg.VecVirtual // places of the rows of both groups, in order
}

func (l *lowbit) constants512() *constants512 {
	c := &constants512{scaleWords: ZMM(), highWords: K(), natural: ZMM()}
	words, bytes := make([]uint16, 32), make([]uint8, 16)
	for i := range 16 {
		words[2*i+1], bytes[emit.PairAt(i/8*8, i%8)] = uint16(i), uint8(i)
	}
	VMOVDQU64(emit.Const(words...), c.scaleWords)
	VMOVDQU64(emit.Natural(), c.natural)
	mask := GP32()
	MOVL(operand.U32(0xaaaaaaaa), mask)
	KMOVD(mask, c.highWords)
	if l.hasZeros() {
		c.zeroBytes, c.offset = XMM(), ZMM()
		VMOVDQU(emit.Const(bytes...), c.zeroBytes)
		VMOVDQU64(emit.AVX512.All32(uint32(l.zeroOffset())), c.offset)
	}
	return c
}

// record512 is a group whose dot products are in sums, and what follows its blocks.
type record512 struct {
	sums       reg.VecVirtual
	scaleWords reg.VecVirtual // BF16
	zeroBytes  reg.VecVirtual
}

// load loads the scales and zero points of the group that ends at the current place.
func (r *record512) load(l *lowbit) {
	r.scaleWords = ZMM()
	VMOVDQU64(l.at(0), r.scaleWords.AsX())
	if l.hasZeros() {
		r.zeroBytes = ZMM()
		VMOVQ(l.at(2*rows), r.zeroBytes.AsX())
	}
}

// scales widens the BF16 scales of r and of the group that ends at the current place, in order.
func (r *record512) scales(l *lowbit, c *constants512) reg.VecVirtual {
	s := r.scaleWords
	VINSERTI32X4(operand.U8(1), l.at(0), s, s)
	VPERMW_Z(s, c.scaleWords, c.highWords, s)
	return s
}

// zeros are the zero points of r, and of the group that ends at the current place if there is one,
// plus the offset, in the order of PairSums.
func (r *record512) zeros(l *lowbit, c *constants512, two bool) reg.VecVirtual {
	z := r.zeroBytes
	if two {
		VPINSRQ(operand.U8(1), l.at(2*rows), z.AsX(), z.AsX())
	}
	VPSHUFB(c.zeroBytes, z.AsX(), z.AsX())
	VPMOVSXBD(z.AsX(), z)
	VPADDD(c.offset, z, z)
	return z
}
