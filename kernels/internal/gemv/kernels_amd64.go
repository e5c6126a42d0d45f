//go:build !purego

package gemv

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

// lowbitSet holds the kernels of one width: symmetric, with integer zero points, with fractional
// zero points (1 to 7 bits), and on the half-step grid (1 and 2 bits). Each has Run and RunSplit.
type lowbitSet struct{ none, zeros, fractions, half [2]func(*Args) }

// By bits-1. AVX-VNNI has none for up to 3 bits, which AVX2 multiplies as fast.
var (
	lowbitAVX2 = [8]lowbitSet{
		{
			none:      [2]func(*Args){lowbit1AVX2, lowbit1SplitAVX2},
			zeros:     [2]func(*Args){lowbit1ZerosAVX2, lowbit1ZerosSplitAVX2},
			fractions: [2]func(*Args){lowbit1FractionsAVX2, lowbit1FractionsSplitAVX2},
			half:      [2]func(*Args){lowbit1HalfAVX2, lowbit1HalfSplitAVX2},
		},
		{
			none:      [2]func(*Args){lowbit2AVX2, lowbit2SplitAVX2},
			zeros:     [2]func(*Args){lowbit2ZerosAVX2, lowbit2ZerosSplitAVX2},
			fractions: [2]func(*Args){lowbit2FractionsAVX2, lowbit2FractionsSplitAVX2},
			half:      [2]func(*Args){lowbit2HalfAVX2, lowbit2HalfSplitAVX2},
		},
		{
			none:      [2]func(*Args){lowbit3AVX2, lowbit3SplitAVX2},
			zeros:     [2]func(*Args){lowbit3ZerosAVX2, lowbit3ZerosSplitAVX2},
			fractions: [2]func(*Args){lowbit3FractionsAVX2, lowbit3FractionsSplitAVX2},
		},
		{
			none:      [2]func(*Args){lowbit4AVX2, lowbit4SplitAVX2},
			zeros:     [2]func(*Args){lowbit4ZerosAVX2, lowbit4ZerosSplitAVX2},
			fractions: [2]func(*Args){lowbit4FractionsAVX2, lowbit4FractionsSplitAVX2},
		},
		{
			none:      [2]func(*Args){lowbit5AVX2, lowbit5SplitAVX2},
			zeros:     [2]func(*Args){lowbit5ZerosAVX2, lowbit5ZerosSplitAVX2},
			fractions: [2]func(*Args){lowbit5FractionsAVX2, lowbit5FractionsSplitAVX2},
		},
		{
			none:      [2]func(*Args){lowbit6AVX2, lowbit6SplitAVX2},
			zeros:     [2]func(*Args){lowbit6ZerosAVX2, lowbit6ZerosSplitAVX2},
			fractions: [2]func(*Args){lowbit6FractionsAVX2, lowbit6FractionsSplitAVX2},
		},
		{
			none:      [2]func(*Args){lowbit7AVX2, lowbit7SplitAVX2},
			zeros:     [2]func(*Args){lowbit7ZerosAVX2, lowbit7ZerosSplitAVX2},
			fractions: [2]func(*Args){lowbit7FractionsAVX2, lowbit7FractionsSplitAVX2},
		},
		{
			none:  [2]func(*Args){lowbit8AVX2, lowbit8SplitAVX2},
			zeros: [2]func(*Args){lowbit8ZerosAVX2, lowbit8ZerosSplitAVX2},
		},
	}
	lowbitAVXVNNI = [8]lowbitSet{
		3: {
			none:      [2]func(*Args){lowbit4AVXVNNI, lowbit4SplitAVXVNNI},
			zeros:     [2]func(*Args){lowbit4ZerosAVXVNNI, lowbit4ZerosSplitAVXVNNI},
			fractions: [2]func(*Args){lowbit4FractionsAVXVNNI, lowbit4FractionsSplitAVXVNNI},
		},
		{
			none:      [2]func(*Args){lowbit5AVXVNNI, lowbit5SplitAVXVNNI},
			zeros:     [2]func(*Args){lowbit5ZerosAVXVNNI, lowbit5ZerosSplitAVXVNNI},
			fractions: [2]func(*Args){lowbit5FractionsAVXVNNI, lowbit5FractionsSplitAVXVNNI},
		},
		{
			none:      [2]func(*Args){lowbit6AVXVNNI, lowbit6SplitAVXVNNI},
			zeros:     [2]func(*Args){lowbit6ZerosAVXVNNI, lowbit6ZerosSplitAVXVNNI},
			fractions: [2]func(*Args){lowbit6FractionsAVXVNNI, lowbit6FractionsSplitAVXVNNI},
		},
		{
			none:      [2]func(*Args){lowbit7AVXVNNI, lowbit7SplitAVXVNNI},
			zeros:     [2]func(*Args){lowbit7ZerosAVXVNNI, lowbit7ZerosSplitAVXVNNI},
			fractions: [2]func(*Args){lowbit7FractionsAVXVNNI, lowbit7FractionsSplitAVXVNNI},
		},
		{
			none:  [2]func(*Args){lowbit8AVXVNNI, lowbit8SplitAVXVNNI},
			zeros: [2]func(*Args){lowbit8ZerosAVXVNNI, lowbit8ZerosSplitAVXVNNI},
		},
	}
	lowbitAVX512 = [8]lowbitSet{
		{
			none:      [2]func(*Args){lowbit1AVX512, lowbit1SplitAVX512},
			zeros:     [2]func(*Args){lowbit1ZerosAVX512, lowbit1ZerosSplitAVX512},
			fractions: [2]func(*Args){lowbit1FractionsAVX512, lowbit1FractionsSplitAVX512},
			half:      [2]func(*Args){lowbit1HalfAVX512, lowbit1HalfSplitAVX512},
		},
		{
			none:      [2]func(*Args){lowbit2AVX512, lowbit2SplitAVX512},
			zeros:     [2]func(*Args){lowbit2ZerosAVX512, lowbit2ZerosSplitAVX512},
			fractions: [2]func(*Args){lowbit2FractionsAVX512, lowbit2FractionsSplitAVX512},
			half:      [2]func(*Args){lowbit2HalfAVX512, lowbit2HalfSplitAVX512},
		},
		{
			none:      [2]func(*Args){lowbit3AVX512, lowbit3SplitAVX512},
			zeros:     [2]func(*Args){lowbit3ZerosAVX512, lowbit3ZerosSplitAVX512},
			fractions: [2]func(*Args){lowbit3FractionsAVX512, lowbit3FractionsSplitAVX512},
		},
		{
			none:      [2]func(*Args){lowbit4AVX512, lowbit4SplitAVX512},
			zeros:     [2]func(*Args){lowbit4ZerosAVX512, lowbit4ZerosSplitAVX512},
			fractions: [2]func(*Args){lowbit4FractionsAVX512, lowbit4FractionsSplitAVX512},
		},
		{
			none:      [2]func(*Args){lowbit5AVX512, lowbit5SplitAVX512},
			zeros:     [2]func(*Args){lowbit5ZerosAVX512, lowbit5ZerosSplitAVX512},
			fractions: [2]func(*Args){lowbit5FractionsAVX512, lowbit5FractionsSplitAVX512},
		},
		{
			none:      [2]func(*Args){lowbit6AVX512, lowbit6SplitAVX512},
			zeros:     [2]func(*Args){lowbit6ZerosAVX512, lowbit6ZerosSplitAVX512},
			fractions: [2]func(*Args){lowbit6FractionsAVX512, lowbit6FractionsSplitAVX512},
		},
		{
			none:      [2]func(*Args){lowbit7AVX512, lowbit7SplitAVX512},
			zeros:     [2]func(*Args){lowbit7ZerosAVX512, lowbit7ZerosSplitAVX512},
			fractions: [2]func(*Args){lowbit7FractionsAVX512, lowbit7FractionsSplitAVX512},
		},
		{
			none:  [2]func(*Args){lowbit8AVX512, lowbit8SplitAVX512},
			zeros: [2]func(*Args){lowbit8ZerosAVX512, lowbit8ZerosSplitAVX512},
		},
	}
)

func init() {
	const avx2, avxvnni, avx512 = cpu.AVX2, cpu.AVXVNNI, cpu.AVX512
	register(lowbit(avx2, &lowbitAVX2)...)
	register(lowbit(avxvnni, &lowbitAVXVNNI)...)
	register(lowbit(avx512, &lowbitAVX512)...)
	register(
		channel(avx2, packing.LayoutQSI4CXP, 4, packing.DefaultTile, -8, qsi4cxpAVX2),
		channel(avxvnni, packing.LayoutQSI4CXP, 4, packing.DefaultTile, -8, qsi4cxpAVXVNNI),
		channel(avx512, packing.LayoutQSI4CXP, 4, packing.DefaultTile, -8, qsi4cxpAVX512),
		channel(avx2, packing.LayoutQSI8CXP, 8, tile4x4x1, 0, qsi8cxp4x4AVX2),
		channel(avxvnni, packing.LayoutQSI8CXP, 8, tile4x4x1, -128, qsi8cxp4x4AVXVNNI),
		channel(avx512, packing.LayoutQSI8CXP, 8, tile4x4x1, -128, qsi8cxp4x4AVX512),
		channel(avx2, packing.LayoutQSI8CXP, 8, tile4x8x1, 0, qsi8cxp4x8AVX2),
		channel(avxvnni, packing.LayoutQSI8CXP, 8, tile4x8x1, -128, qsi8cxp4x8AVXVNNI),
		channel(avx512, packing.LayoutQSI8CXP, 8, tile4x8x1, -128, qsi8cxp4x8AVX512),
	)
}

// lowbit describes the lowbit kernels of an instruction set. They multiply unsigned codes q +
// 2^(bits-1), except for 8 bits without VNNI, and correct the dot products by the sums of
// activations.
func lowbit(feature string, sets *[8]lowbitSet) (kernels []Kernel) {
	for i, set := range sets {
		bits := uint8(i + 1)
		k := Kernel{Feature: feature, Layout: packing.LayoutLowbit, Bits: bits, Tile: packing.DefaultTile}
		add := func(scheme string, zeros packing.ZeroKind, grid packing.Grid, sumFactor int32, run [2]func(*Args)) {
			if run[0] == nil {
				return
			}
			k.Name = fmt.Sprintf("gemv_lowbit%d%s_%s_%s", bits, scheme, k.Tile, feature)
			k.Zeros, k.Grid, k.SumFactor, k.Run, k.RunSplit = zeros, grid, sumFactor, run[0], run[1]
			kernels = append(kernels, k)
		}
		offset := int32(1) << (bits - 1)
		if feature == cpu.AVX2 && bits == 8 {
			offset = 0
		}
		plain := -offset
		if feature == cpu.AVX2 && bits == 1 {
			plain = 0 // both codes, -1 and 0, are multiplied by their magnitude
		}
		add("", packing.ZeroNone, packing.GridInteger, plain, set.none)
		add("_zeros", packing.ZeroInt8, packing.GridInteger, -1, set.zeros)
		add("_fractions", packing.ZeroFraction, packing.GridInteger, -1, set.fractions)
		add("_half", packing.ZeroNone, packing.GridHalfStep, 1-2*offset, set.half)
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
