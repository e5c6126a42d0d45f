package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// With AVX-512, 64 columns are two groups of 32 columns that share bytes, or that lie in adjacent
// bytes. The bits of each group are shifted by another number.

// both is a vector with 32 bytes of memory in both halves.
func both(m operand.Mem) reg.VecVirtual {
	v := ZMM()
	VBROADCASTI64X4(m, v)
	return v
}

// shifts are the numbers of bits by which halves shifts.
func shifts(first, second int) (m operand.Mem, left bool) {
	n := make([]uint32, 16)
	left = first < 0 || second < 0
	for i := range n {
		by := first
		if i >= 8 {
			by = second
		}
		n[i] = uint32(max(by, -by))
	}
	return emit.Const(n...), left
}

// halves are the dwords of x, each half shifted to the right, or to the left if negative.
func halves(first, second int, x reg.VecVirtual) reg.VecVirtual {
	v := ZMM()
	if by, left := shifts(first, second); left {
		VPSLLVD(constant(by), x, v)
	} else {
		VPSRLVD(constant(by), x, v)
	}
	return v
}

// and512 returns x & mask, in x.
func and512(mask uint8, x reg.VecVirtual) reg.VecVirtual {
	VPANDD(constant(emit.AVX512.All(mask)), x, x)
	return x
}

// andOr adds the bits of x under mask to y.
func andOr(mask uint8, x, y reg.VecVirtual) reg.VecVirtual {
	// Bit 4y + 2x + m of the table is y | x&m.
	VPTERNLOGD(operand.U8(0b1111_1000), constant(emit.AVX512.All(mask)), x, y)
	return y
}

// high adds bits 2j and 2j+1 of the bytes of x to the codes of the two groups, as bit to.
func high(j, to int, x, codes reg.VecVirtual) reg.VecVirtual {
	return andOr(1<<to, halves(2*j-to, 2*j+1-to, x), codes)
}

func twoBits512(b block, at int) func(j int) reg.VecVirtual {
	var raw reg.VecVirtual
	return func(j int) reg.VecVirtual {
		if j%2 == 0 {
			raw = both(b.at(at + 16*j))
		}
		return and512(3, halves(j%2*4, j%2*4+2, raw))
	}
}

func nibbles512(b block, at int) func(j int) reg.VecVirtual {
	return func(j int) reg.VecVirtual { return and512(15, halves(0, 4, both(b.at(at+32*j)))) }
}

// codes512 returns a function for columns 64j to 64j+63. Signed codes are + 128.
func (s *superType) codes512(b block) func(j int) reg.VecVirtual {
	switch s.name {
	case "Q2_K":
		return twoBits512(b, 16)
	case "TQ2_0":
		return twoBits512(b, 0)
	case "Q3_K":
		low, top := twoBits512(b, 32), both(b.at(0))
		return func(j int) reg.VecVirtual { return high(j, 2, top, low(j)) }
	case "Q4_K":
		return nibbles512(b, 16)
	case "Q5_K":
		low, top := nibbles512(b, 48), both(b.at(16))
		return func(j int) reg.VecVirtual { return high(j, 4, top, low(j)) }
	case "Q6_K":
		var low, top reg.VecVirtual
		return func(j int) reg.VecVirtual {
			if j%2 == 0 {
				low, top = emit.AVX512.Load(b.at(32*j)), both(b.at(128+16*j))
				q := ZMM()
				VPANDD(constant(emit.AVX512.All(15)), low, q)
				return andOr(48, halves(-4, -2, top), q)
			}
			q := ZMM()
			VPSRLW(operand.U8(4), low, q)
			return andOr(48, halves(0, 2, top), and512(15, q))
		}
	}
	// IQ4_XS
	table := held[iq4Table().Symbol.Name]
	return func(j int) reg.VecVirtual {
		v, q := both(b.at(8+32*j)), ZMM()
		VSHUFI64X2(operand.U8(0b01_01_00_00), v, v, v)
		VPSRLVD(constant(iq4Shifts()), v, v)
		VPSHUFB(and512(15, v), table, q)
		return q
	}
}

func iq4Table() operand.Mem {
	var numbers []uint8
	for range 4 {
		for _, x := range iq4 {
			numbers = append(numbers, uint8(x)^128)
		}
	}
	return emit.Const(numbers...)
}

func iq4Shifts() operand.Mem {
	return emit.Const[uint32](0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4)
}

// spread512 is the order of sub-scales for the words of 64 columns, or for their dwords.
func (s *superType) spread512(j int) operand.Mem {
	if s.signed {
		return emit.Const(order512[uint32](64*j, 4, s.group)...)
	}
	return emit.Const(order512[uint16](64*j, 2, s.group)...)
}

func order512[T uint16 | uint32](first, columns, group int) (order []T) {
	for i := range 64 / columns {
		order = append(order, T((first+i*columns)/group))
	}
	return order
}

// constants512 are the constants of codes512 and dots512.
func (s *superType) constants512() (list []operand.Mem) {
	shift := func(first, second int) {
		m, _ := shifts(first, second)
		list = append(list, m)
	}
	bits := func(to int) { // of high
		for j := range 4 {
			shift(2*j-to, 2*j+1-to)
		}
		list = append(list, emit.AVX512.All(1<<to))
	}
	switch s.name {
	case "Q4_K", "Q5_K":
		shift(0, 4)
		list = append(list, emit.AVX512.All(15))
		if s.name == "Q5_K" {
			bits(4)
		}
	case "Q6_K":
		shift(-4, -2)
		shift(0, 2)
		list = append(list, emit.AVX512.All(15), emit.AVX512.All(48))
	case "IQ4_XS":
		list = append(list, iq4Table(), iq4Shifts(), emit.AVX512.All(15))
	default:
		shift(0, 2)
		shift(4, 6)
		list = append(list, emit.AVX512.All(3))
		if s.name == "Q3_K" {
			bits(2)
		}
	}
	if s.subs != nil {
		for j := range 4 {
			list = append(list, s.spread512(j))
		}
	}
	return list
}

// dots512 adds the products of a block, times sub-scales, to total, 8 dwords.
func (s *superType) dots512(b block, subs reg.VecVirtual, acts, total reg.Register) {
	codes, sums := s.codes512(b), emit.AVX512.Vectors(2)
	for _, v := range sums {
		VPXORD(v, v, v)
	}
	factors := ZMM()
	switch {
	case s.subs == nil:
	case s.signed:
		VPMOVSXBD(subs, factors)
	default:
		VPMOVSXBW(subs, factors.AsY())
	}
	for j := range 4 {
		act, sum := operand.Mem{Base: acts, Disp: 64 * j}, sums[j%2]
		q, x := codes(j), ZMM()
		switch {
		case s.subs == nil:
			VPDPBUSD(act, q, sum)
		case s.signed:
			VPERMD(factors, held[s.spread512(j).Symbol.Name], x)
			t := ZMM()
			VPXORD(t, t, t)
			VPDPBUSD(act, q, t)
			VPMULLD(x, t, t)
			VPADDD(t, sum, sum)
		default:
			VPERMW(factors, held[s.spread512(j).Symbol.Name], x)
			VPMADDUBSW(act, q, q)
			VPDPWSSD(x, q, sum)
		}
	}
	VPADDD(sums[1], sums[0], sums[0])
	y := YMM()
	VEXTRACTI64X4(operand.U8(1), sums[0], y)
	VPADDD(y, total, total)
	VPADDD(sums[0].AsY(), total, total)
}
