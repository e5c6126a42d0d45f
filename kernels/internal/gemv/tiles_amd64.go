//go:build !purego

package gemv

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

func init() {
	const avx2, avxvnni, avx512 = cpu.AVX2, cpu.AVXVNNI, cpu.AVX512
	register(
		tiled(avx2, packing.LayoutLowbit, tile4x8x2, packing.ZeroNone, -8, lowbit4Tile4x8AVX2),
		tiled(avx2, packing.LayoutLowbit, tile4x8x2, packing.ZeroInt8, -1, lowbit4ZerosTile4x8AVX2),
		tiled(avx2, packing.LayoutQSI4CXP, tile4x8x2, packing.ZeroNone, -8, qsi4cxpTile4x8AVX2),
		tiled(avx2, packing.LayoutLowbit, tile4x16x2, packing.ZeroNone, -8, lowbit4Tile4x16AVX2),
		tiled(avx2, packing.LayoutLowbit, tile4x16x2, packing.ZeroInt8, -1, lowbit4ZerosTile4x16AVX2),
		tiled(avx2, packing.LayoutQSI4CXP, tile4x16x2, packing.ZeroNone, -8, qsi4cxpTile4x16AVX2),
		tiled(avx2, packing.LayoutLowbit, tile8x8x2, packing.ZeroNone, -8, lowbit4Tile8x8AVX2),
		tiled(avx2, packing.LayoutLowbit, tile8x8x2, packing.ZeroInt8, -1, lowbit4ZerosTile8x8AVX2),
		tiled(avx2, packing.LayoutQSI4CXP, tile8x8x2, packing.ZeroNone, -8, qsi4cxpTile8x8AVX2),
		tiled(avx2, packing.LayoutQSI4C32PF16, tile4x8x2, packing.ZeroNone, -8, f16Tile4x8AVX2),
		tiled(avx2, packing.LayoutQSI4C32PF16, tile4x16x2, packing.ZeroNone, -8, f16Tile4x16AVX2),
		tiled(avx2, packing.LayoutQSI4C32PF16, tile8x8x2, packing.ZeroNone, -8, f16Tile8x8AVX2),
		tiled(avx2, packing.LayoutQSI4C32PF16, tile8x16x2, packing.ZeroNone, -8, f16Tile8x16AVX2),
		tiled(avx2, packing.LayoutQAI4C32P, tile4x8x2, packing.ZeroF32, -8, qai4c32pTile4x8AVX2),
		tiled(avx2, packing.LayoutQAI4C32P, tile4x16x2, packing.ZeroF32, -8, qai4c32pTile4x16AVX2),
		channel(avx2, packing.LayoutQSU2CXP, 2, tile4x4x1, -2, qsu2cxpAVX2),

		tiled(avxvnni, packing.LayoutLowbit, tile4x8x2, packing.ZeroNone, -8, lowbit4Tile4x8AVXVNNI),
		tiled(avxvnni, packing.LayoutLowbit, tile4x8x2, packing.ZeroInt8, -1, lowbit4ZerosTile4x8AVXVNNI),
		tiled(avxvnni, packing.LayoutQSI4CXP, tile4x8x2, packing.ZeroNone, -8, qsi4cxpTile4x8AVXVNNI),
		tiled(avxvnni, packing.LayoutLowbit, tile4x16x2, packing.ZeroNone, -8, lowbit4Tile4x16AVXVNNI),
		tiled(avxvnni, packing.LayoutLowbit, tile4x16x2, packing.ZeroInt8, -1, lowbit4ZerosTile4x16AVXVNNI),
		tiled(avxvnni, packing.LayoutQSI4CXP, tile4x16x2, packing.ZeroNone, -8, qsi4cxpTile4x16AVXVNNI),
		tiled(avxvnni, packing.LayoutLowbit, tile8x8x2, packing.ZeroNone, -8, lowbit4Tile8x8AVXVNNI),
		tiled(avxvnni, packing.LayoutLowbit, tile8x8x2, packing.ZeroInt8, -1, lowbit4ZerosTile8x8AVXVNNI),
		tiled(avxvnni, packing.LayoutQSI4CXP, tile8x8x2, packing.ZeroNone, -8, qsi4cxpTile8x8AVXVNNI),
		tiled(avxvnni, packing.LayoutQSI4C32PF16, tile4x8x2, packing.ZeroNone, -8, f16Tile4x8AVXVNNI),
		tiled(avxvnni, packing.LayoutQSI4C32PF16, tile4x16x2, packing.ZeroNone, -8, f16Tile4x16AVXVNNI),
		tiled(avxvnni, packing.LayoutQSI4C32PF16, tile8x8x2, packing.ZeroNone, -8, f16Tile8x8AVXVNNI),
		tiled(avxvnni, packing.LayoutQSI4C32PF16, tile8x16x2, packing.ZeroNone, -8, f16Tile8x16AVXVNNI),
		tiled(avxvnni, packing.LayoutQAI4C32P, tile4x8x2, packing.ZeroF32, -8, qai4c32pTile4x8AVXVNNI),
		tiled(avxvnni, packing.LayoutQAI4C32P, tile4x16x2, packing.ZeroF32, -8, qai4c32pTile4x16AVXVNNI),
		channel(avxvnni, packing.LayoutQSU2CXP, 2, tile4x4x1, -2, qsu2cxpAVXVNNI),

		tiled(avx512, packing.LayoutLowbit, tile4x8x2, packing.ZeroNone, -8, lowbit4Tile4x8AVX512),
		tiled(avx512, packing.LayoutLowbit, tile4x8x2, packing.ZeroInt8, -1, lowbit4ZerosTile4x8AVX512),
		tiled(avx512, packing.LayoutQSI4CXP, tile4x8x2, packing.ZeroNone, -8, qsi4cxpTile4x8AVX512),
		tiled(avx512, packing.LayoutLowbit, tile4x16x2, packing.ZeroNone, -8, lowbit4Tile4x16AVX512),
		tiled(avx512, packing.LayoutLowbit, tile4x16x2, packing.ZeroInt8, -1, lowbit4ZerosTile4x16AVX512),
		tiled(avx512, packing.LayoutQSI4CXP, tile4x16x2, packing.ZeroNone, -8, qsi4cxpTile4x16AVX512),
		tiled(avx512, packing.LayoutLowbit, tile8x8x2, packing.ZeroNone, -8, lowbit4Tile8x8AVX512),
		tiled(avx512, packing.LayoutLowbit, tile8x8x2, packing.ZeroInt8, -1, lowbit4ZerosTile8x8AVX512),
		tiled(avx512, packing.LayoutQSI4CXP, tile8x8x2, packing.ZeroNone, -8, qsi4cxpTile8x8AVX512),
		tiled(avx512, packing.LayoutQSI4C32PF16, tile4x8x2, packing.ZeroNone, -8, f16Tile4x8AVX512),
		tiled(avx512, packing.LayoutQSI4C32PF16, tile4x16x2, packing.ZeroNone, -8, f16Tile4x16AVX512),
		tiled(avx512, packing.LayoutQSI4C32PF16, tile8x8x2, packing.ZeroNone, -8, f16Tile8x8AVX512),
		tiled(avx512, packing.LayoutQSI4C32PF16, tile8x16x2, packing.ZeroNone, -8, f16Tile8x16AVX512),
		tiled(avx512, packing.LayoutQAI4C32P, tile4x8x2, packing.ZeroF32, -8, qai4c32pTile4x8AVX512),
		tiled(avx512, packing.LayoutQAI4C32P, tile4x16x2, packing.ZeroF32, -8, qai4c32pTile4x16AVX512),
		channel(avx512, packing.LayoutQSU2CXP, 2, tile4x4x1, -2, qsu2cxpAVX512),
	)
}

// tiled describes a kernel of 4-bit codes in one of the tiles that layouts other than the default
// have.
func tiled(feature string, layout packing.Layout, tile packing.Tile, zeros packing.ZeroKind, sumFactor int32, run func(*Args)) Kernel {
	k := channel(feature, layout, 4, tile, sumFactor, run)
	k.Zeros, k.Halves = zeros, layout == packing.LayoutQSI4C32PF16
	if layout == packing.LayoutLowbit {
		scheme := ""
		if zeros != packing.ZeroNone {
			scheme = "_zeros"
		}
		k.Name = fmt.Sprintf("gemv_%s4%s_%s_%s", layout, scheme, tile, feature)
	}
	return k
}
