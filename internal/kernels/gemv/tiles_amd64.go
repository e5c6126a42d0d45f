//go:build !purego

package gemv

import (
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

// The kernels of tiles that layouts other than the default have, and of 2 bits.
func init() {
	const (
		lowbit, qsi4cxp, qsu2cxp = packing.LayoutLowbit, packing.LayoutQSI4CXP, packing.LayoutQSU2CXP
		f16, qai4c32p            = packing.LayoutQSI4C32PF16, packing.LayoutQAI4C32P
		none, int8s, floats      = packing.ZeroNone, packing.ZeroInt8, packing.ZeroF32
	)
	kernels := []struct {
		layout    packing.Layout
		bits      uint8
		tile      packing.Tile
		zeros     packing.ZeroKind
		sumFactor int32
		run       []func(*Call) // for AVX2, AVX-VNNI and AVX-512
	}{
		{lowbit, 4, tile4x8x2, none, -8, lowbits(lowbit4Tile4x8AVX2, lowbit4Tile4x8AVXVNNI, lowbit4Tile4x8AVX512)},
		{lowbit, 4, tile4x8x2, int8s, -1, lowbits(lowbit4ZerosTile4x8AVX2, lowbit4ZerosTile4x8AVXVNNI, lowbit4ZerosTile4x8AVX512)},
		{qsi4cxp, 4, tile4x8x2, none, -8, channels(qsi4cxpTile4x8AVX2, qsi4cxpTile4x8AVXVNNI, qsi4cxpTile4x8AVX512)},
		{lowbit, 4, tile4x16x2, none, -8, lowbits(lowbit4Tile4x16AVX2, lowbit4Tile4x16AVXVNNI, lowbit4Tile4x16AVX512)},
		{lowbit, 4, tile4x16x2, int8s, -1, lowbits(lowbit4ZerosTile4x16AVX2, lowbit4ZerosTile4x16AVXVNNI, lowbit4ZerosTile4x16AVX512)},
		{qsi4cxp, 4, tile4x16x2, none, -8, channels(qsi4cxpTile4x16AVX2, qsi4cxpTile4x16AVXVNNI, qsi4cxpTile4x16AVX512)},
		{lowbit, 4, tile8x8x2, none, -8, lowbits(lowbit4Tile8x8AVX2, lowbit4Tile8x8AVXVNNI, lowbit4Tile8x8AVX512)},
		{lowbit, 4, tile8x8x2, int8s, -1, lowbits(lowbit4ZerosTile8x8AVX2, lowbit4ZerosTile8x8AVXVNNI, lowbit4ZerosTile8x8AVX512)},
		{qsi4cxp, 4, tile8x8x2, none, -8, channels(qsi4cxpTile8x8AVX2, qsi4cxpTile8x8AVXVNNI, qsi4cxpTile8x8AVX512)},
		{f16, 4, tile4x8x2, none, -8, blocks(f16Tile4x8AVX2, f16Tile4x8AVXVNNI, f16Tile4x8AVX512)},
		{f16, 4, tile4x16x2, none, -8, blocks(f16Tile4x16AVX2, f16Tile4x16AVXVNNI, f16Tile4x16AVX512)},
		{f16, 4, tile8x8x2, none, -8, blocks(f16Tile8x8AVX2, f16Tile8x8AVXVNNI, f16Tile8x8AVX512)},
		{f16, 4, tile8x16x2, none, -8, blocks(f16Tile8x16AVX2, f16Tile8x16AVXVNNI, f16Tile8x16AVX512)},
		{qai4c32p, 4, tile4x8x2, floats, -8, qai4s(qai4c32pTile4x8AVX2, qai4c32pTile4x8AVXVNNI, qai4c32pTile4x8AVX512)},
		{qai4c32p, 4, tile4x16x2, floats, -8, qai4s(qai4c32pTile4x16AVX2, qai4c32pTile4x16AVXVNNI, qai4c32pTile4x16AVX512)},
		{qsu2cxp, 2, tile4x4x1, none, -2, channels(qsu2cxpAVX2, qsu2cxpAVXVNNI, qsu2cxpAVX512)},
	}
	for i, feature := range []string{cpu.AVX2, cpu.AVXVNNI, cpu.AVX512} {
		for _, k := range kernels {
			register(Kernel{
				Feature: feature, Layout: k.layout, Bits: k.bits, Tile: k.tile, Zeros: k.zeros, Halves: k.layout == f16,
				SumFactor: k.sumFactor, Run: k.run[i],
			})
		}
	}
}
