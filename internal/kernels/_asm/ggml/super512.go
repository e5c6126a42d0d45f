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

// halves are the dwords of x, shifted to the right in each half, or to the left if negative.
func halves(first, second int, x reg.VecVirtual) reg.VecVirtual {
	v, n := ZMM(), make([]uint32, 16)
	left := first < 0 || second < 0
	for i := range n {
		by := first
		if i >= 8 {
			by = second
		}
		if left {
			by = -by
		}
		n[i] = uint32(by)
	}
	if left {
		VPSLLVD(emit.Const(n...), x, v)
	} else {
		VPSRLVD(emit.Const(n...), x, v)
	}
	return v
}

// and512 returns x & mask, in x.
func and512(mask uint8, x reg.VecVirtual) reg.VecVirtual {
	VPANDD(emit.AVX512.All(mask), x, x)
	return x
}

// andOr adds the bits of x under mask to y.
func andOr(mask uint8, x, y reg.VecVirtual) reg.VecVirtual {
	// Bit 4y + 2x + m of the table is y | x&m.
	VPTERNLOGD(operand.U8(0b1111_1000), emit.AVX512.All(mask), x, y)
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
				VPANDD(emit.AVX512.All(15), low, q)
				return andOr(48, halves(-4, -2, top), q)
			}
			q := ZMM()
			VPSRLW(operand.U8(4), low, q)
			return andOr(48, halves(0, 2, top), and512(15, q))
		}
	}
	// IQ4_XS
	table := ZMM()
	var numbers []uint8
	for range 4 {
		for _, x := range iq4 {
			numbers = append(numbers, uint8(x)^128)
		}
	}
	VMOVDQU64(emit.Const(numbers...), table)
	return func(j int) reg.VecVirtual {
		v, q := both(b.at(8+32*j)), ZMM()
		VSHUFI64X2(operand.U8(0b01_01_00_00), v, v, v)
		VPSRLVD(emit.Const[uint32](0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4), v, v)
		VPSHUFB(and512(15, v), table, q)
		return q
	}
}

// spread512 is the order of sub-scales for the words, or dwords, of 64 columns.
func (s *superType) spread512(j, columns int) (order []uint16) {
	for i := range 64 / columns {
		order = append(order, uint16((64*j+i*columns)/s.group))
	}
	return order
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
			order := s.spread512(j, 4)
			wide := make([]uint32, len(order))
			for i, at := range order {
				wide[i] = uint32(at)
			}
			VMOVDQU64(emit.Const(wide...), x)
			VPERMD(factors, x, x)
			t := ZMM()
			VPXORD(t, t, t)
			VPDPBUSD(act, q, t)
			VPMULLD(x, t, t)
			VPADDD(t, sum, sum)
		default:
			VMOVDQU64(emit.Const(s.spread512(j, 2)...), x)
			VPERMW(factors, x, x)
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
