//go:build !purego

package gemv

import (
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

// lowbitSet holds the kernels of an instruction set by bits-1: symmetric, with integer zero points,
// with fractional zero points (1 to 7 bits), and on the half-step grid (1 and 2 bits). Each has Run
// and RunSplit.
type lowbitSet struct{ none, zeros, fractions, half [8][2]func(*LowbitArgs) }

// AVX-VNNI has no kernels for up to 3 bits: AVX2 multiplies such codes as fast.
var (
	lowbitAVX2 = lowbitSet{
		none: [8][2]func(*LowbitArgs){
			{lowbit1AVX2, lowbit1SplitAVX2}, {lowbit2AVX2, lowbit2SplitAVX2}, {lowbit3AVX2, lowbit3SplitAVX2},
			{lowbit4AVX2, lowbit4SplitAVX2}, {lowbit5AVX2, lowbit5SplitAVX2}, {lowbit6AVX2, lowbit6SplitAVX2},
			{lowbit7AVX2, lowbit7SplitAVX2}, {lowbit8AVX2, lowbit8SplitAVX2},
		},
		zeros: [8][2]func(*LowbitArgs){
			{lowbit1ZerosAVX2, lowbit1ZerosSplitAVX2}, {lowbit2ZerosAVX2, lowbit2ZerosSplitAVX2},
			{lowbit3ZerosAVX2, lowbit3ZerosSplitAVX2}, {lowbit4ZerosAVX2, lowbit4ZerosSplitAVX2},
			{lowbit5ZerosAVX2, lowbit5ZerosSplitAVX2}, {lowbit6ZerosAVX2, lowbit6ZerosSplitAVX2},
			{lowbit7ZerosAVX2, lowbit7ZerosSplitAVX2}, {lowbit8ZerosAVX2, lowbit8ZerosSplitAVX2},
		},
		fractions: [8][2]func(*LowbitArgs){
			{lowbit1FractionsAVX2, lowbit1FractionsSplitAVX2}, {lowbit2FractionsAVX2, lowbit2FractionsSplitAVX2},
			{lowbit3FractionsAVX2, lowbit3FractionsSplitAVX2}, {lowbit4FractionsAVX2, lowbit4FractionsSplitAVX2},
			{lowbit5FractionsAVX2, lowbit5FractionsSplitAVX2}, {lowbit6FractionsAVX2, lowbit6FractionsSplitAVX2},
			{lowbit7FractionsAVX2, lowbit7FractionsSplitAVX2},
		},
		half: [8][2]func(*LowbitArgs){{lowbit1HalfAVX2, lowbit1HalfSplitAVX2}, {lowbit2HalfAVX2, lowbit2HalfSplitAVX2}},
	}
	lowbitAVXVNNI = lowbitSet{
		none: [8][2]func(*LowbitArgs){
			3: {lowbit4AVXVNNI, lowbit4SplitAVXVNNI}, {lowbit5AVXVNNI, lowbit5SplitAVXVNNI}, {lowbit6AVXVNNI, lowbit6SplitAVXVNNI},
			{lowbit7AVXVNNI, lowbit7SplitAVXVNNI}, {lowbit8AVXVNNI, lowbit8SplitAVXVNNI},
		},
		zeros: [8][2]func(*LowbitArgs){
			3: {lowbit4ZerosAVXVNNI, lowbit4ZerosSplitAVXVNNI}, {lowbit5ZerosAVXVNNI, lowbit5ZerosSplitAVXVNNI},
			{lowbit6ZerosAVXVNNI, lowbit6ZerosSplitAVXVNNI}, {lowbit7ZerosAVXVNNI, lowbit7ZerosSplitAVXVNNI},
			{lowbit8ZerosAVXVNNI, lowbit8ZerosSplitAVXVNNI},
		},
		fractions: [8][2]func(*LowbitArgs){
			3: {lowbit4FractionsAVXVNNI, lowbit4FractionsSplitAVXVNNI}, {lowbit5FractionsAVXVNNI, lowbit5FractionsSplitAVXVNNI},
			{lowbit6FractionsAVXVNNI, lowbit6FractionsSplitAVXVNNI}, {lowbit7FractionsAVXVNNI, lowbit7FractionsSplitAVXVNNI},
		},
	}
	lowbitAVX512 = lowbitSet{
		none: [8][2]func(*LowbitArgs){
			{lowbit1AVX512, lowbit1SplitAVX512}, {lowbit2AVX512, lowbit2SplitAVX512}, {lowbit3AVX512, lowbit3SplitAVX512},
			{lowbit4AVX512, lowbit4SplitAVX512}, {lowbit5AVX512, lowbit5SplitAVX512}, {lowbit6AVX512, lowbit6SplitAVX512},
			{lowbit7AVX512, lowbit7SplitAVX512}, {lowbit8AVX512, lowbit8SplitAVX512},
		},
		zeros: [8][2]func(*LowbitArgs){
			{lowbit1ZerosAVX512, lowbit1ZerosSplitAVX512}, {lowbit2ZerosAVX512, lowbit2ZerosSplitAVX512},
			{lowbit3ZerosAVX512, lowbit3ZerosSplitAVX512}, {lowbit4ZerosAVX512, lowbit4ZerosSplitAVX512},
			{lowbit5ZerosAVX512, lowbit5ZerosSplitAVX512}, {lowbit6ZerosAVX512, lowbit6ZerosSplitAVX512},
			{lowbit7ZerosAVX512, lowbit7ZerosSplitAVX512}, {lowbit8ZerosAVX512, lowbit8ZerosSplitAVX512},
		},
		fractions: [8][2]func(*LowbitArgs){
			{lowbit1FractionsAVX512, lowbit1FractionsSplitAVX512}, {lowbit2FractionsAVX512, lowbit2FractionsSplitAVX512},
			{lowbit3FractionsAVX512, lowbit3FractionsSplitAVX512}, {lowbit4FractionsAVX512, lowbit4FractionsSplitAVX512},
			{lowbit5FractionsAVX512, lowbit5FractionsSplitAVX512}, {lowbit6FractionsAVX512, lowbit6FractionsSplitAVX512},
			{lowbit7FractionsAVX512, lowbit7FractionsSplitAVX512},
		},
		half: [8][2]func(*LowbitArgs){{lowbit1HalfAVX512, lowbit1HalfSplitAVX512}, {lowbit2HalfAVX512, lowbit2HalfSplitAVX512}},
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

// lowbit describes the lowbit kernels of an instruction set. These multiply unsigned codes q +
// 2^(bits-1), except for 8 bits without VNNI, and correct the dot products by the sums of
// activations.
func lowbit(feature string, set *lowbitSet) (kernels []Kernel) {
	for i := range set.none {
		bits := uint8(i + 1)
		k := Kernel{Feature: feature, Layout: packing.LayoutLowbit, Bits: bits, Tile: packing.DefaultTile}
		add := func(zeros packing.ZeroKind, grid packing.Grid, sumFactor int32, run [2]func(*LowbitArgs)) {
			if run[0] == nil {
				return
			}
			functions := lowbits(run[:]...)
			k.Zeros, k.Grid, k.SumFactor, k.Run, k.RunSplit = zeros, grid, sumFactor, functions[0], functions[1]
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
		add(packing.ZeroNone, packing.GridInteger, plain, set.none[i])
		add(packing.ZeroInt8, packing.GridInteger, -1, set.zeros[i])
		add(packing.ZeroFraction, packing.GridInteger, -1, set.fractions[i])
		add(packing.ZeroNone, packing.GridHalfStep, 1-2*offset, set.half[i])
	}
	return kernels
}

func channel(feature string, layout packing.Layout, bits uint8, tile packing.Tile, sumFactor int32, run func(*ChannelArgs)) Kernel {
	return Kernel{Feature: feature, Layout: layout, Bits: bits, Tile: tile, SumFactor: sumFactor, Run: channels(run)[0]}
}
