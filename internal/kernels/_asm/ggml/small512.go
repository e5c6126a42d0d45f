package main

import (
	"github.com/lowbit-go/gq/internal/kernels/_asm/emit"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pairs reports whether the kernel multiplies two rows of weights with an instruction: the first
// two lanes are of an even row, the others of the next row.
func (s *smallType) pairs(isa emit.ISA) bool { return isa == emit.AVX512 && s.parts() == 1 }

// pairedRow is the row of output i before natural512.
func pairedRow(i int) int { return i%4*2 + i/4 }

// natural512 puts outputs in the order of rows.
func natural512() operand.Mem { return emit.Const[uint32](0, 4, 1, 5, 2, 6, 3, 7) }

func (s *smallType) holdPairs() {
	switch {
	case s.nibbles > 0:
		hold(emit.AVX512, append([]operand.Mem{pairShifts(), emit.AVX512.All(15)}, s.pairTable()...)...)
	case s.signed:
		hold(emit.AVX512, emit.AVX512.All(128))
	default:
		hold(emit.AVX2, s.hold()...)
	}
}

func pairShifts() operand.Mem {
	return emit.Const[uint32](0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4)
}

// pairTable has unsigned numbers in all lanes, if codes are of a table.
func (s *smallType) pairTable() []operand.Mem {
	var b []uint8
	for i := range 4 * len(s.table) {
		x := uint8(s.table[i%len(s.table)])
		if s.signed {
			x ^= 128
		}
		b = append(b, x)
	}
	if b == nil {
		return nil
	}
	return []operand.Mem{emit.Const(b...)}
}

// pair is the unsigned codes of two rows. second selects the dwords of the second row.
func (s *smallType) pair(row, next block, second reg.Register) reg.VecVirtual {
	v := ZMM()
	switch {
	case s.nibbles > 0:
		VBROADCASTI32X4(row.at(s.nibbles), v)
		VBROADCASTI32X4(next.at(s.nibbles), second, v)
		VPSRLVD(constant(pairShifts()), v, v)
		VPANDD(constant(emit.AVX512.All(15)), v, v)
		for _, table := range s.pairTable() {
			VPSHUFB(v, constant(table).(reg.Register), v)
		}
	case s.signed: // Q8_0
		VINSERTI64X4(operand.U8(1), next.at(2), emit.AVX2.Load(row.at(2)).AsZ(), v)
		VPXORD(constant(emit.AVX512.All(128)), v, v)
	default:
		VINSERTI64X4(operand.U8(1), s.codes(next), s.codes(row).AsZ(), v)
	}
	return v
}

// pairSums is sums for pairs of rows, in their order.
func (s *smallType) pairSums(row func(int) block, acts reg.VecVirtual, second reg.Register) reg.VecVirtual {
	var list [4]reg.VecVirtual
	for i := range list {
		list[i] = ZMM()
		VPXORD(list[i], list[i], list[i])
		emit.AVX512.Dot(acts, s.pair(row(2*i), row(2*i+1), second), list[i])
	}
	isa := emit.AVX512
	x := isa.PairSums(isa.PairSums(list[0], list[1]), isa.PairSums(list[2], list[3]))
	even, odd := ZMM(), ZMM() // lanes
	VSHUFI64X2(operand.U8(0b10_00_10_00), x, x, even)
	VSHUFI64X2(operand.U8(0b11_01_11_01), x, x, odd)
	t := YMM()
	VPADDD(odd.AsY(), even.AsY(), t)
	return t
}
