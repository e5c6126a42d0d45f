//go:build !purego

package gemv

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

// lowbitSet holds the kernels of one width: symmetric, with integer zero points, with fractional
// zero points (1 to 7 bits), and on the half-step grid (1 and 2 bits).
type lowbitSet struct{ none, zeros, fractions, half func(*Args) }

// By bits-1.
var (
	lowbitAVX2 = [8]lowbitSet{
		{lowbit1AVX2, lowbit1ZerosAVX2, lowbit1FractionsAVX2, lowbit1HalfAVX2},
		{lowbit2AVX2, lowbit2ZerosAVX2, lowbit2FractionsAVX2, lowbit2HalfAVX2},
		{lowbit3AVX2, lowbit3ZerosAVX2, lowbit3FractionsAVX2, nil},
		{lowbit4AVX2, lowbit4ZerosAVX2, lowbit4FractionsAVX2, nil},
		{lowbit5AVX2, lowbit5ZerosAVX2, lowbit5FractionsAVX2, nil},
		{lowbit6AVX2, lowbit6ZerosAVX2, lowbit6FractionsAVX2, nil},
		{lowbit7AVX2, lowbit7ZerosAVX2, lowbit7FractionsAVX2, nil},
		{lowbit8AVX2, lowbit8ZerosAVX2, nil, nil},
	}
	lowbitAVX512 = [8]lowbitSet{
		{lowbit1AVX512, lowbit1ZerosAVX512, lowbit1FractionsAVX512, lowbit1HalfAVX512},
		{lowbit2AVX512, lowbit2ZerosAVX512, lowbit2FractionsAVX512, lowbit2HalfAVX512},
		{lowbit3AVX512, lowbit3ZerosAVX512, lowbit3FractionsAVX512, nil},
		{lowbit4AVX512, lowbit4ZerosAVX512, lowbit4FractionsAVX512, nil},
		{lowbit5AVX512, lowbit5ZerosAVX512, lowbit5FractionsAVX512, nil},
		{lowbit6AVX512, lowbit6ZerosAVX512, lowbit6FractionsAVX512, nil},
		{lowbit7AVX512, lowbit7ZerosAVX512, lowbit7FractionsAVX512, nil},
		{lowbit8AVX512, lowbit8ZerosAVX512, nil, nil},
	}
)

func init() {
	const avx2, avx512 = cpu.AVX2, cpu.AVX512
	tile4, tile8 := packing.Tile{NR: 4, KR: 4, SR: 1}, packing.Tile{NR: 4, KR: 8, SR: 1}
	register(lowbit(avx2, &lowbitAVX2)...)
	register(lowbit(avx512, &lowbitAVX512)...)
	register(
		channel(avx2, packing.LayoutQSI4CXP, 4, packing.DefaultTile, -8, qsi4cxpAVX2),
		channel(avx512, packing.LayoutQSI4CXP, 4, packing.DefaultTile, -8, qsi4cxpAVX512),
		channel(avx2, packing.LayoutQSI8CXP, 8, tile4, 0, qsi8cxp4x4AVX2),
		channel(avx512, packing.LayoutQSI8CXP, 8, tile4, -128, qsi8cxp4x4AVX512),
		channel(avx2, packing.LayoutQSI8CXP, 8, tile8, 0, qsi8cxp4x8AVX2),
		channel(avx512, packing.LayoutQSI8CXP, 8, tile8, -128, qsi8cxp4x8AVX512),
	)
}

// lowbit describes the lowbit kernels of an instruction set. They multiply unsigned codes q +
// 2^(bits-1), except for 8 bits without VNNI, and correct the dot products by the sums of
// activations.
func lowbit(feature string, sets *[8]lowbitSet) (kernels []Kernel) {
	for i, set := range sets {
		bits := uint8(i + 1)
		k := Kernel{Feature: feature, Layout: packing.LayoutLowbit, Bits: bits, Tile: packing.DefaultTile}
		add := func(scheme string, zeros packing.ZeroKind, grid packing.Grid, sumFactor int32, run func(*Args)) {
			k.Name = fmt.Sprintf("gemv_lowbit%d%s_%s_%s", bits, scheme, k.Tile, feature)
			k.Zeros, k.Grid, k.SumFactor, k.Run = zeros, grid, sumFactor, run
			kernels = append(kernels, k)
		}
		offset := int32(1) << (bits - 1)
		if feature == cpu.AVX2 && bits == 8 {
			offset = 0
		}
		add("", packing.ZeroNone, packing.GridInteger, -offset, set.none)
		add("_zeros", packing.ZeroInt8, packing.GridInteger, -1, set.zeros)
		if set.fractions != nil {
			add("_fractions", packing.ZeroFraction, packing.GridInteger, -1, set.fractions)
		}
		if set.half != nil {
			add("_half", packing.ZeroNone, packing.GridHalfStep, 1-2*offset, set.half)
		}
	}
	return kernels
}

// channel describes a kernel of a layout with one scale a row.
func channel(feature string, layout packing.Layout, bits uint8, tile packing.Tile, sumFactor int32, run func(*Args)) Kernel {
	return Kernel{
		Name:    fmt.Sprintf("gemv_%s_%s_%s", layout, tile, feature),
		Feature: feature, Layout: layout, Bits: bits, Tile: tile, SumFactor: sumFactor, Run: run,
	}
}
