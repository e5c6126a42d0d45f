//go:build !purego

package gemv

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

func init() {
	const (
		lowbit, qsi4cxp, f16, qai4c32p = packing.LayoutLowbit, packing.LayoutQSI4CXP, packing.LayoutQSI4C32PF16, packing.LayoutQAI4C32P
		none, int8s, floats            = packing.ZeroNone, packing.ZeroInt8, packing.ZeroF32
	)
	kernels := []struct {
		layout    packing.Layout
		tile      packing.Tile
		zeros     packing.ZeroKind
		sumFactor int32
		run       runs
	}{
		{lowbit, tile4x8x2, none, -8, runs{lowbit4Tile4x8AVX2, lowbit4Tile4x8AVXVNNI, lowbit4Tile4x8AVX512}},
		{lowbit, tile4x8x2, int8s, -1, runs{lowbit4ZerosTile4x8AVX2, lowbit4ZerosTile4x8AVXVNNI, lowbit4ZerosTile4x8AVX512}},
		{qsi4cxp, tile4x8x2, none, -8, runs{qsi4cxpTile4x8AVX2, qsi4cxpTile4x8AVXVNNI, qsi4cxpTile4x8AVX512}},
		{lowbit, tile4x16x2, none, -8, runs{lowbit4Tile4x16AVX2, lowbit4Tile4x16AVXVNNI, lowbit4Tile4x16AVX512}},
		{lowbit, tile4x16x2, int8s, -1, runs{lowbit4ZerosTile4x16AVX2, lowbit4ZerosTile4x16AVXVNNI, lowbit4ZerosTile4x16AVX512}},
		{qsi4cxp, tile4x16x2, none, -8, runs{qsi4cxpTile4x16AVX2, qsi4cxpTile4x16AVXVNNI, qsi4cxpTile4x16AVX512}},
		{lowbit, tile8x8x2, none, -8, runs{lowbit4Tile8x8AVX2, lowbit4Tile8x8AVXVNNI, lowbit4Tile8x8AVX512}},
		{lowbit, tile8x8x2, int8s, -1, runs{lowbit4ZerosTile8x8AVX2, lowbit4ZerosTile8x8AVXVNNI, lowbit4ZerosTile8x8AVX512}},
		{qsi4cxp, tile8x8x2, none, -8, runs{qsi4cxpTile8x8AVX2, qsi4cxpTile8x8AVXVNNI, qsi4cxpTile8x8AVX512}},
		{f16, tile4x8x2, none, -8, runs{f16Tile4x8AVX2, f16Tile4x8AVXVNNI, f16Tile4x8AVX512}},
		{f16, tile4x16x2, none, -8, runs{f16Tile4x16AVX2, f16Tile4x16AVXVNNI, f16Tile4x16AVX512}},
		{f16, tile8x8x2, none, -8, runs{f16Tile8x8AVX2, f16Tile8x8AVXVNNI, f16Tile8x8AVX512}},
		{f16, tile8x16x2, none, -8, runs{f16Tile8x16AVX2, f16Tile8x16AVXVNNI, f16Tile8x16AVX512}},
		{qai4c32p, tile4x8x2, floats, -8, runs{qai4c32pTile4x8AVX2, qai4c32pTile4x8AVXVNNI, qai4c32pTile4x8AVX512}},
		{qai4c32p, tile4x16x2, floats, -8, runs{qai4c32pTile4x16AVX2, qai4c32pTile4x16AVXVNNI, qai4c32pTile4x16AVX512}},
	}
	two := runs{qsu2cxpAVX2, qsu2cxpAVXVNNI, qsu2cxpAVX512}
	for i, feature := range []string{cpu.AVX2, cpu.AVXVNNI, cpu.AVX512} {
		for _, k := range kernels {
			register(tiled(feature, k.layout, k.tile, k.zeros, k.sumFactor, k.run[i]))
		}
		register(channel(feature, packing.LayoutQSU2CXP, 2, tile4x4x1, -2, two[i]))
	}
}

// runs are functions for AVX2, AVX-VNNI and AVX-512.
type runs [3]func(*Args)

// tiled describes a kernel of 4-bit codes in a tile that only layouts other than the default have.
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
