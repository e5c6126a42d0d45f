package main

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// variant is the correction of a group's dot product.
type variant int

const (
	symmetric variant = iota
	zeros             // an int8 zero point per row after the scales
	fractions         // the same in units of 2^(bits-8)
	halfStep          // a zero point of -1/2
)

// rows of a panel of the lowbit layout, tile 8x16x2.
const rows = 8

// lowbit is a kernel under construction.
type lowbit struct {
	*kernel
	isa     emit.ISA
	bits    int
	variant variant
	split   bool // for groups that are odd multiples of 16 columns
	planes  *emit.Planes
	// following are the sums of the following group, which begins amid a block, if split.
	following []reg.VecVirtual
	// lastSum: AVX-512 converts one group, not two.
	lastSum bool
}

func newLowbit(isa emit.ISA, bits int, v variant, split bool) *lowbit {
	name := fmt.Sprintf("lowbit%d%s", bits, [...]string{"", "Zeros", "Fractions", "Half"}[v])
	doc := fmt.Sprintf(" is the product of lowbit panels 8x16x2 of %d bits%s", bits,
		[...]string{"", " with zero points", " with fractional zero points", " on the half-step grid"}[v])
	if split {
		name += "Split"
		doc += ", in groups of odd multiples of 16 columns"
	}
	name += isa.Suffix()
	return &lowbit{kernel: begin(name, name+doc+".", "LowbitArgs", rows), isa: isa, bits: bits, variant: v, split: split}
}

// clear clears registers.
func (l *lowbit) clear(list []reg.VecVirtual) {
	for _, v := range list {
		if l.isa == emit.AVX512 {
			VPXORD(v, v, v)
		} else {
			VPXOR(v, v, v)
		}
	}
}

// blockBytes is the size of a block of 32 columns. unitBytes is the size of one of its two units,
// which hold columns 0..7 and 16..23, and 8..15 and 24..31, in the even and odd lanes.
func (l *lowbit) blockBytes() int { return 2 * l.unitBytes() }
func (l *lowbit) unitBytes() int  { return 16 * l.bits }

// recordBytes is the size of the scales and zero points of a group.
func (l *lowbit) recordBytes() int {
	if l.hasZeros() {
		return 3 * rows
	}
	return 2 * rows
}

// hasZeros reports whether zero points follow the scales.
func (l *lowbit) hasZeros() bool { return l.variant == zeros || l.variant == fractions }

// shift moves dot products into the unit of the zero points.
func (l *lowbit) shift() int {
	if l.variant == fractions {
		return 8 - l.bits
	}
	return 0
}

// zeroOffset is the excess of the numbers that are multiplied, in the unit of the zero points.
func (l *lowbit) zeroOffset() int { return l.offset() << l.shift() }

// inverted reports whether the kernel multiplies codes of 1 bit, -1 or 0, by their magnitude, and
// subtracts the products: it needs no sum of activations.
func (l *lowbit) inverted() bool { return l.isa == emit.AVX2 && l.bits == 1 && l.variant == symmetric }

// flip is the constant that is xored to the bytes of planes, so that codes become unsigned numbers
// q + 2^(bits-1), or -q if inverted. Codes of 4 and 8 bits are stored in two's complement.
func (l *lowbit) flip() uint8 {
	switch {
	case l.inverted():
		return 0xff
	case l.bits == 4:
		return 0x88
	case l.bits == 8:
		return 0x80
	}
	return 0
}

// offset is the excess over q of the numbers that are multiplied.
func (l *lowbit) offset() int {
	if l.isa == emit.AVX2 && l.bits == 8 || l.inverted() { // 8: see wide2
		return 0
	}
	return 1 << (l.bits - 1)
}

// convert turns the dot products in sums into t as float32, with the group's zero points, if any.
// Sums holds the sum of the group's activations times the kernel's SumFactor: minus the offset; -1
// with zero points; and 1 - 2^bits on the half-step grid, where twice the dot product is added to
// it. With fractional zero points the dot product is shifted to their unit before.
func (l *lowbit) convert(sums reg.VecVirtual, loadZeros func() reg.VecVirtual) {
	switch l.variant {
	case symmetric:
		if l.offset() != 0 {
			VPADDD(l.groupSums(), sums, sums)
		}
	case zeros, fractions:
		if n := l.shift(); n > 0 {
			VPSLLD(operand.U8(n), sums, sums)
		}
		c := loadZeros()
		VPMULLD(l.groupSums(), c, c)
		VPADDD(c, sums, sums)
	case halfStep:
		VPADDD(sums, sums, sums)
		VPADDD(l.groupSums(), sums, sums)
	}
	VCVTDQ2PS(sums, sums)
	switch l.variant { // by a power of 2: exact
	case fractions:
		VMULPS(l.isa.All32(math.Float32bits(1/float32(int(1)<<l.shift()))), sums, sums)
	case halfStep:
		VMULPS(l.isa.All32(math.Float32bits(0.5)), sums, sums)
	}
}

// groupSums is the sum of the group in all dwords, or of two groups in the order of PairSums.
func (l *lowbit) groupSums() reg.VecVirtual {
	at, s := operand.Mem{Base: l.sums}, l.isa.Vector()
	if l.isa == emit.AVX512 && !l.lastSum {
		VPBROADCASTQ(at, s)
		VPSHUFD(operand.U8(0b01_01_00_00), s, s)
	} else {
		VPBROADCASTD(at, s)
	}
	return s
}
