package main

import (
	"github.com/lowbit-go/gq/kernels/internal/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lowbit512 multiplies two panels at a time: they share the activations, and their 16 rows fill a
// vector at the end of a group.
func lowbit512(bits int, v variant, split bool) {
	l := newLowbit(emit.AVX512, bits, v, split)
	l.planes = emit.NewPlanes(emit.AVX512, bits, l.flip(), bits <= 2, 0)
	c := l.constants512()
	f := ZMM()
	if split {
		l.following = emit.AVX512.Vectors(2) // of odd lanes
	}
	l.eachPair(func() {
		VPXORD(f, f, f)
		l.clear(l.following)
		l.eachGroup(func() {
			t := l.dots512()
			l.convert(t, func() reg.VecVirtual { return l.zeros512(c) })
			VFMADD231PS(t, l.scales512(c), f)
			l.prefetch(l.recordBytes())
			ADDQ(operand.U32(l.recordBytes()), l.codes)
		})
		l.finish512(c, f)
	})
}

// dots512 emits the dot products of a group of both panels, in the order of PairSums' result. A
// vector of codes is 8 columns of the 8 rows of a panel, so VPDPBUSD makes two dwords for a row, of
// 4 columns each.
//
// Codes of 1 and 2 bits stay at their place in the byte. Their products are too large by a power of
// 2 that depends on the lane, and are shifted when they are added. The sum of a row of 65,536
// columns is still below 2^31.
func (l *lowbit) dots512() reg.VecVirtual {
	even, odd := emit.AVX512.Vectors(2), emit.AVX512.Vectors(2) // sums of the lanes of each panel
	for panel := range even {
		l.clear(even[panel : panel+1])
		if l.split {
			VMOVDQA64(l.following[panel], odd[panel])
		} else {
			l.clear(odd[panel : panel+1])
		}
	}
	block := func(sums ...[]reg.VecVirtual) {
		for unit := range 2 {
			acts := emit.AVX512.Vectors(2)
			VPBROADCASTQ(l.act(8*unit), acts[0])
			VPBROADCASTQ(l.act(8*unit+16), acts[1])
			for panel, at := range []operand.Mem{l.at(unit * l.unitBytes()), l.next(unit * l.unitBytes())} {
				l.planes.Unpack(at, func(half int, codes reg.VecVirtual) {
					VPDPBUSD(acts[half], codes, sums[half][panel])
				})
			}
		}
	}
	if l.split {
		l.eachSplitBlock(l.blockBytes(), func() { block(even, odd) }, func() { l.clear(l.following) }, func() { block(even, l.following) })
	} else {
		l.eachBlock(l.blockBytes(), func() { block(even, odd) })
	}
	place := l.planes.Place()
	for panel := range even {
		if place != nil {
			VPSLLD(operand.U8(l.bits), odd[panel], odd[panel]) // the codes of odd lanes are lower in a byte
		}
		VPADDD(odd[panel], even[panel], even[panel])
	}
	t := emit.AVX512.PairSums(even[0], even[1])
	if place != nil {
		VPSRAVD(place, t, t)
	}
	return t
}

// constants512 are registers that hold constants in the whole function.
type constants512 struct {
	scaleWords reg.VecVirtual // source word of each word of two panels' scales
	highWords  reg.OpmaskVirtual
	zeroBytes  reg.VecVirtual // source byte of each byte of two panels' zero points
	offset     reg.VecVirtual
	natural    reg.VecVirtual // places of the rows of both panels, in order
}

func (l *lowbit) constants512() *constants512 {
	c := &constants512{scaleWords: ZMM(), highWords: K(), natural: ZMM()}
	words, bytes := make([]uint16, 32), make([]uint8, 16)
	for i := range 16 {
		at := emit.PairAt(i/8*8, i%8)
		words[2*at+1], bytes[at] = uint16(i), uint8(i)
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

// scales512 widens the BF16 scales at the end of a group of both panels to float32, in the order of
// PairSums.
func (l *lowbit) scales512(c *constants512) reg.VecVirtual {
	s := ZMM()
	VBROADCASTI32X4(l.at(0), s)
	VINSERTI32X4(operand.U8(1), l.next(0), s, s)
	VPERMW_Z(s, c.scaleWords, c.highWords, s)
	return s
}

// zeros512 loads the zero points after the scales and adds the offset.
func (l *lowbit) zeros512(c *constants512) reg.VecVirtual {
	z := ZMM()
	VMOVQ(l.at(2*rows), z.AsX())
	VPINSRQ(operand.U8(1), l.next(2*rows), z.AsX(), z.AsX())
	VPSHUFB(c.zeroBytes, z.AsX(), z.AsX())
	VPMOVSXBD(z.AsX(), z)
	VPADDD(c.offset, z, z)
	return z
}

// finish512 adds the term of the activations' zero point and the biases, and writes the outputs.
func (l *lowbit) finish512(c *constants512, f reg.VecVirtual) {
	out := ZMM()
	VPERMPS(f, c.natural, out)
	VFMADD231PS_BCST(l.arg("NegZero"), l.both(0), out)
	VMULPS_BCST(l.arg("Rec"), out, out)
	VADDPS(l.both(4*rows), out, out)
	emit.AVX512.Canonical(out)
	l.store512(out)
}

// both are 8 values of the tail of each panel.
func (l *lowbit) both(offset int) reg.VecVirtual {
	z := ZMM()
	VBROADCASTF64X4(l.at(offset), z)
	VINSERTF64X4(operand.U8(1), l.next(offset), z, z)
	return z
}

func (l *lowbit) store512(out reg.VecVirtual) {
	VMOVUPS(out.AsY(), operand.Mem{Base: l.dst})
	VEXTRACTF64X4(operand.U8(1), out, operand.Mem{Base: l.nextDst})
}
