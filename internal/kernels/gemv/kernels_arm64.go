//go:build !purego

package gemv

import (
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

// Stubs of the assembly. They are called through Kernel.Run and RunSplit only, so that
// go:noescape would have no effect.

// The lowbit kernels give the same bits as package reference for packing.LayoutLowbit. Kernels with
// Zeros in their names read integer zero points, kernels with Fractions read fractional zero
// points, and kernels with Half are for the half-step grid. Kernels with Split are RunSplit.

func lowbit1Dotprod(a *LowbitArgs)
func lowbit1SplitDotprod(a *LowbitArgs)
func lowbit1ZerosDotprod(a *LowbitArgs)
func lowbit1ZerosSplitDotprod(a *LowbitArgs)
func lowbit1FractionsDotprod(a *LowbitArgs)
func lowbit1FractionsSplitDotprod(a *LowbitArgs)
func lowbit1HalfDotprod(a *LowbitArgs)
func lowbit1HalfSplitDotprod(a *LowbitArgs)
func lowbit2Dotprod(a *LowbitArgs)
func lowbit2SplitDotprod(a *LowbitArgs)
func lowbit2ZerosDotprod(a *LowbitArgs)
func lowbit2ZerosSplitDotprod(a *LowbitArgs)
func lowbit2FractionsDotprod(a *LowbitArgs)
func lowbit2FractionsSplitDotprod(a *LowbitArgs)
func lowbit2HalfDotprod(a *LowbitArgs)
func lowbit2HalfSplitDotprod(a *LowbitArgs)
func lowbit3Dotprod(a *LowbitArgs)
func lowbit3SplitDotprod(a *LowbitArgs)
func lowbit3ZerosDotprod(a *LowbitArgs)
func lowbit3ZerosSplitDotprod(a *LowbitArgs)
func lowbit3FractionsDotprod(a *LowbitArgs)
func lowbit3FractionsSplitDotprod(a *LowbitArgs)
func lowbit4Dotprod(a *LowbitArgs)
func lowbit4SplitDotprod(a *LowbitArgs)
func lowbit4ZerosDotprod(a *LowbitArgs)
func lowbit4ZerosSplitDotprod(a *LowbitArgs)
func lowbit4FractionsDotprod(a *LowbitArgs)
func lowbit4FractionsSplitDotprod(a *LowbitArgs)
func lowbit5Dotprod(a *LowbitArgs)
func lowbit5SplitDotprod(a *LowbitArgs)
func lowbit5ZerosDotprod(a *LowbitArgs)
func lowbit5ZerosSplitDotprod(a *LowbitArgs)
func lowbit5FractionsDotprod(a *LowbitArgs)
func lowbit5FractionsSplitDotprod(a *LowbitArgs)
func lowbit6Dotprod(a *LowbitArgs)
func lowbit6SplitDotprod(a *LowbitArgs)
func lowbit6ZerosDotprod(a *LowbitArgs)
func lowbit6ZerosSplitDotprod(a *LowbitArgs)
func lowbit6FractionsDotprod(a *LowbitArgs)
func lowbit6FractionsSplitDotprod(a *LowbitArgs)
func lowbit7Dotprod(a *LowbitArgs)
func lowbit7SplitDotprod(a *LowbitArgs)
func lowbit7ZerosDotprod(a *LowbitArgs)
func lowbit7ZerosSplitDotprod(a *LowbitArgs)
func lowbit7FractionsDotprod(a *LowbitArgs)
func lowbit7FractionsSplitDotprod(a *LowbitArgs)
func lowbit8Dotprod(a *LowbitArgs)
func lowbit8SplitDotprod(a *LowbitArgs)
func lowbit8ZerosDotprod(a *LowbitArgs)
func lowbit8ZerosSplitDotprod(a *LowbitArgs)

// Kernels with F16 and F32 in their names read scales of these types.

func lowbit4F16Dotprod(a *LowbitArgs)
func lowbit4F16SplitDotprod(a *LowbitArgs)
func lowbit4ZerosF16Dotprod(a *LowbitArgs)
func lowbit4ZerosF16SplitDotprod(a *LowbitArgs)
func lowbit4F32Dotprod(a *LowbitArgs)
func lowbit4F32SplitDotprod(a *LowbitArgs)
func lowbit4ZerosF32Dotprod(a *LowbitArgs)
func lowbit4ZerosF32SplitDotprod(a *LowbitArgs)
func lowbit4Tile4x16Dotprod(a *LowbitArgs)
func lowbit4ZerosTile4x16Dotprod(a *LowbitArgs)
func lowbit4Tile4x8Dotprod(a *LowbitArgs)
func lowbit4ZerosTile4x8Dotprod(a *LowbitArgs)
func lowbit4Tile8x8Dotprod(a *LowbitArgs)
func lowbit4ZerosTile8x8Dotprod(a *LowbitArgs)
func lowbit4Neon(a *LowbitArgs)
func lowbit4SplitNeon(a *LowbitArgs)
func lowbit4ZerosNeon(a *LowbitArgs)
func lowbit4ZerosSplitNeon(a *LowbitArgs)
func lowbit4FractionsNeon(a *LowbitArgs)
func lowbit4FractionsSplitNeon(a *LowbitArgs)
func lowbit8Neon(a *LowbitArgs)
func lowbit8SplitNeon(a *LowbitArgs)
func lowbit8ZerosNeon(a *LowbitArgs)
func lowbit8ZerosSplitNeon(a *LowbitArgs)

// The qsi4cxp, qsi8cxp and qsu2cxp kernels give the same bits as package reference for
// packing.LayoutQSI4CXP, LayoutQSI8CXP and LayoutQSU2CXP. Names state tiles but 8x16x2
// (qsi4cxp) and 4x4x1 (qsu2cxp).

func qsi4cxpDotprod(a *ChannelArgs)
func qsi4cxp4x16Dotprod(a *ChannelArgs)
func qsi4cxp4x8Dotprod(a *ChannelArgs)
func qsi4cxp8x8Dotprod(a *ChannelArgs)
func qsi4cxpNeon(a *ChannelArgs)
func qsi8cxp4x4Dotprod(a *ChannelArgs)
func qsi8cxp4x4Neon(a *ChannelArgs)
func qsi8cxp4x8Dotprod(a *ChannelArgs)
func qsi8cxp4x8Neon(a *ChannelArgs)
func qsu2cxpDotprod(a *ChannelArgs)

// The f16 kernels give the same bits as package reference for packing.LayoutQSI4C32PF16.

func f16Tile8x16Dotprod(a *BlocksArgs)
func f16Tile8x8Dotprod(a *BlocksArgs)
func f16Tile4x16Dotprod(a *BlocksArgs)
func f16Tile4x8Dotprod(a *BlocksArgs)

// The qai4c32p kernels give the same bits as package reference for packing.LayoutQAI4C32P.

func qai4c32p4x16Dotprod(a *QAI4Args)
func qai4c32p4x8Dotprod(a *QAI4Args)

// The torchao kernels give the same bits as package reference for packing.LayoutTorchAOLinear.

func torchao1Dotprod(a *TorchAOArgs)
func torchao1ZerosDotprod(a *TorchAOArgs)
func torchao2Dotprod(a *TorchAOArgs)
func torchao2ZerosDotprod(a *TorchAOArgs)
func torchao3Dotprod(a *TorchAOArgs)
func torchao3ZerosDotprod(a *TorchAOArgs)
func torchao4Dotprod(a *TorchAOArgs)
func torchao4ZerosDotprod(a *TorchAOArgs)
func torchao5Dotprod(a *TorchAOArgs)
func torchao5ZerosDotprod(a *TorchAOArgs)
func torchao6Dotprod(a *TorchAOArgs)
func torchao6ZerosDotprod(a *TorchAOArgs)
func torchao7Dotprod(a *TorchAOArgs)
func torchao7ZerosDotprod(a *TorchAOArgs)
func torchao8Dotprod(a *TorchAOArgs)
func torchao8ZerosDotprod(a *TorchAOArgs)

func init() {
	const none, zeros, fractions = packing.ZeroNone, packing.ZeroInt8, packing.ZeroFraction
	const integer, half = packing.GridInteger, packing.GridHalfStep
	register(
		lowbit(cpu.DotProd, 1, none, integer, 1, lowbit1Dotprod, lowbit1SplitDotprod),
		lowbit(cpu.DotProd, 1, zeros, integer, 1, lowbit1ZerosDotprod, lowbit1ZerosSplitDotprod),
		lowbit(cpu.DotProd, 1, fractions, integer, 1, lowbit1FractionsDotprod, lowbit1FractionsSplitDotprod),
		lowbit(cpu.DotProd, 1, none, half, -1, lowbit1HalfDotprod, lowbit1HalfSplitDotprod),
		lowbit(cpu.DotProd, 2, none, integer, -1, lowbit2Dotprod, lowbit2SplitDotprod),
		lowbit(cpu.DotProd, 2, zeros, integer, 1, lowbit2ZerosDotprod, lowbit2ZerosSplitDotprod),
		lowbit(cpu.DotProd, 2, fractions, integer, 1, lowbit2FractionsDotprod, lowbit2FractionsSplitDotprod),
		lowbit(cpu.DotProd, 2, none, half, -3, lowbit2HalfDotprod, lowbit2HalfSplitDotprod),
		lowbit(cpu.DotProd, 3, none, integer, -2, lowbit3Dotprod, lowbit3SplitDotprod),
		lowbit(cpu.DotProd, 3, zeros, integer, 1, lowbit3ZerosDotprod, lowbit3ZerosSplitDotprod),
		lowbit(cpu.DotProd, 3, fractions, integer, 1, lowbit3FractionsDotprod, lowbit3FractionsSplitDotprod),
		lowbit(cpu.DotProd, 4, none, integer, 0, lowbit4Dotprod, lowbit4SplitDotprod),
		lowbit(cpu.DotProd, 4, zeros, integer, -1, lowbit4ZerosDotprod, lowbit4ZerosSplitDotprod),
		lowbit(cpu.DotProd, 4, fractions, integer, 1, lowbit4FractionsDotprod, lowbit4FractionsSplitDotprod),
		lowbit(cpu.DotProd, 5, none, integer, -8, lowbit5Dotprod, lowbit5SplitDotprod),
		lowbit(cpu.DotProd, 5, zeros, integer, 1, lowbit5ZerosDotprod, lowbit5ZerosSplitDotprod),
		lowbit(cpu.DotProd, 5, fractions, integer, 1, lowbit5FractionsDotprod, lowbit5FractionsSplitDotprod),
		lowbit(cpu.DotProd, 6, none, integer, -16, lowbit6Dotprod, lowbit6SplitDotprod),
		lowbit(cpu.DotProd, 6, zeros, integer, 1, lowbit6ZerosDotprod, lowbit6ZerosSplitDotprod),
		lowbit(cpu.DotProd, 6, fractions, integer, 1, lowbit6FractionsDotprod, lowbit6FractionsSplitDotprod),
		lowbit(cpu.DotProd, 7, none, integer, -32, lowbit7Dotprod, lowbit7SplitDotprod),
		lowbit(cpu.DotProd, 7, zeros, integer, 1, lowbit7ZerosDotprod, lowbit7ZerosSplitDotprod),
		lowbit(cpu.DotProd, 7, fractions, integer, 1, lowbit7FractionsDotprod, lowbit7FractionsSplitDotprod),
		lowbit(cpu.DotProd, 8, none, integer, 0, lowbit8Dotprod, lowbit8SplitDotprod),
		lowbit(cpu.DotProd, 8, zeros, integer, 1, lowbit8ZerosDotprod, lowbit8ZerosSplitDotprod),
		lowbit(cpu.NEON, 4, none, integer, 0, lowbit4Neon, lowbit4SplitNeon),
		lowbit(cpu.NEON, 4, zeros, integer, 1, lowbit4ZerosNeon, lowbit4ZerosSplitNeon),
		lowbit(cpu.NEON, 4, fractions, integer, 1, lowbit4FractionsNeon, lowbit4FractionsSplitNeon),
		lowbit(cpu.NEON, 8, none, integer, 0, lowbit8Neon, lowbit8SplitNeon),
		lowbit(cpu.NEON, 8, zeros, integer, 1, lowbit8ZerosNeon, lowbit8ZerosSplitNeon),

		scaled(lowbit(cpu.DotProd, 4, none, integer, 0, lowbit4F16Dotprod, lowbit4F16SplitDotprod), packing.ScaleF16),
		scaled(lowbit(cpu.DotProd, 4, zeros, integer, -1, lowbit4ZerosF16Dotprod, lowbit4ZerosF16SplitDotprod), packing.ScaleF16),
		scaled(lowbit(cpu.DotProd, 4, none, integer, 0, lowbit4F32Dotprod, lowbit4F32SplitDotprod), packing.ScaleF32),
		scaled(lowbit(cpu.DotProd, 4, zeros, integer, -1, lowbit4ZerosF32Dotprod, lowbit4ZerosF32SplitDotprod), packing.ScaleF32),
		tiled(lowbit(cpu.DotProd, 4, none, integer, 0, lowbit4Tile4x16Dotprod, nil), tile4x16x2),
		tiled(lowbit(cpu.DotProd, 4, zeros, integer, -1, lowbit4ZerosTile4x16Dotprod, nil), tile4x16x2),
		tiled(lowbit(cpu.DotProd, 4, none, integer, 0, lowbit4Tile4x8Dotprod, nil), tile4x8x2),
		tiled(lowbit(cpu.DotProd, 4, zeros, integer, -1, lowbit4ZerosTile4x8Dotprod, nil), tile4x8x2),
		tiled(lowbit(cpu.DotProd, 4, none, integer, 0, lowbit4Tile8x8Dotprod, nil), tile8x8x2),
		tiled(lowbit(cpu.DotProd, 4, zeros, integer, -1, lowbit4ZerosTile8x8Dotprod, nil), tile8x8x2),

		f16(tile8x16x2, f16Tile8x16Dotprod),
		f16(tile8x8x2, f16Tile8x8Dotprod),
		f16(tile4x16x2, f16Tile4x16Dotprod),
		f16(tile4x8x2, f16Tile4x8Dotprod),
		qai4c32p(tile4x16x2, qai4c32p4x16Dotprod),
		qai4c32p(tile4x8x2, qai4c32p4x8Dotprod),

		torchao(1, none, -1, torchao1Dotprod),
		torchao(1, zeros, 1, torchao1ZerosDotprod),
		torchao(2, none, -2, torchao2Dotprod),
		torchao(2, zeros, 1, torchao2ZerosDotprod),
		torchao(3, none, -4, torchao3Dotprod),
		torchao(3, zeros, 1, torchao3ZerosDotprod),
		torchao(4, none, -4, torchao4Dotprod),
		torchao(4, zeros, 1, torchao4ZerosDotprod),
		torchao(5, none, -8, torchao5Dotprod),
		torchao(5, zeros, 1, torchao5ZerosDotprod),
		torchao(6, none, -16, torchao6Dotprod),
		torchao(6, zeros, 1, torchao6ZerosDotprod),
		torchao(7, none, -32, torchao7Dotprod),
		torchao(7, zeros, 1, torchao7ZerosDotprod),
		torchao(8, none, 0, torchao8Dotprod),
		torchao(8, zeros, 1, torchao8ZerosDotprod),

		channel(cpu.DotProd, packing.LayoutQSI4CXP, 4, tile8x16x2, Twice, 0, qsi4cxpDotprod),
		channel(cpu.DotProd, packing.LayoutQSI4CXP, 4, tile4x16x2, Twice, 0, qsi4cxp4x16Dotprod),
		channel(cpu.DotProd, packing.LayoutQSI4CXP, 4, tile4x8x2, Row, 0, qsi4cxp4x8Dotprod),
		channel(cpu.DotProd, packing.LayoutQSI4CXP, 4, tile8x8x2, Row, 0, qsi4cxp8x8Dotprod),
		channel(cpu.NEON, packing.LayoutQSI4CXP, 4, tile8x16x2, Twice, 0, qsi4cxpNeon),
		channel(cpu.DotProd, packing.LayoutQSU2CXP, 2, tile4x4x1, Row, -2, qsu2cxpDotprod),
		channel(cpu.DotProd, packing.LayoutQSI8CXP, 8, tile4x4x1, Row, 0, qsi8cxp4x4Dotprod),
		channel(cpu.NEON, packing.LayoutQSI8CXP, 8, tile4x4x1, Row, 0, qsi8cxp4x4Neon),
		channel(cpu.DotProd, packing.LayoutQSI8CXP, 8, tile4x8x1, Twice, 0, qsi8cxp4x8Dotprod),
		channel(cpu.NEON, packing.LayoutQSI8CXP, 8, tile4x8x1, Twice, 0, qsi8cxp4x8Neon),
	)
}
