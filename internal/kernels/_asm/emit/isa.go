package emit

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// ISA is an instruction set of the generated kernels.
type ISA int

const (
	AVX2    ISA = iota // with FMA
	AVXVNNI            // AVX2 with VPDPBUSD, whose encoding is VEX
	AVX512             // F, BW, DQ, VL and VNNI
)

// ISAs are the instruction sets by the names in the commands' flags.
var ISAs = map[string]ISA{"avx2": AVX2, "avxvnni": AVXVNNI, "avx512": AVX512}

// Suffix ends the names of functions.
func (isa ISA) Suffix() string { return [...]string{"AVX2", "AVXVNNI", "AVX512"}[isa] }

// Lanes is the number of lanes of 128 bits in a vector.
func (isa ISA) Lanes() int { return [...]int{2, 2, 4}[isa] }

// Bytes is the size of a vector.
func (isa ISA) Bytes() int { return 16 * isa.Lanes() }

// Vector is a new register.
func (isa ISA) Vector() reg.VecVirtual {
	if isa == AVX512 {
		return ZMM()
	}
	return YMM()
}

// Like is a new register of the size of v.
func Like(v reg.VecVirtual) reg.VecVirtual {
	switch v.Size() {
	case 64:
		return ZMM()
	case 32:
		return YMM()
	}
	return XMM()
}

// Vectors are n new registers.
func (isa ISA) Vectors(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = isa.Vector()
	}
	return v
}

// Zero clears v.
func (isa ISA) Zero(v reg.VecVirtual) {
	if isa == AVX512 {
		VPXORD(v, v, v)
	} else {
		VPXOR(v, v, v)
	}
}

// Load is a new register with a vector of memory that need not be aligned.
func (isa ISA) Load(from operand.Mem) reg.VecVirtual {
	v := isa.Vector()
	if isa == AVX512 {
		VMOVDQU64(from, v)
	} else {
		VMOVDQU(from, v)
	}
	return v
}

// Store writes a vector to memory that need not be aligned.
func (isa ISA) Store(v reg.VecVirtual, to operand.Mem) {
	if isa == AVX512 {
		VMOVDQU64(v, to)
	} else {
		VMOVDQU(v, to)
	}
}

// And is into = x & y, Or x | y, Xor x ^ y.
func (isa ISA) And(x, y operand.Op, into reg.VecVirtual) {
	if isa == AVX512 {
		VPANDD(x, y, into)
	} else {
		VPAND(x, y, into)
	}
}

func (isa ISA) Or(x, y operand.Op, into reg.VecVirtual) {
	if isa == AVX512 {
		VPORD(x, y, into)
	} else {
		VPOR(x, y, into)
	}
}

func (isa ISA) Xor(x, y operand.Op, into reg.VecVirtual) {
	if isa == AVX512 {
		VPXORD(x, y, into)
	} else {
		VPXOR(x, y, into)
	}
}
