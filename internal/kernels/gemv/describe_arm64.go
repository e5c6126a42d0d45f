//go:build !purego

package gemv

import (
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

func lowbit(feature string, bits uint8, zeros packing.ZeroKind, grid packing.Grid, sumFactor int32, run, split func(*LowbitArgs)) Kernel {
	functions := lowbits(run, split)
	return Kernel{
		Feature: feature, Layout: packing.LayoutLowbit, Bits: bits, Tile: packing.DefaultTile, Zeros: zeros, Grid: grid,
		Order: Twice, SumFactor: sumFactor, Run: functions[0], RunSplit: functions[1],
	}
}

func scaled(k Kernel, scales packing.ScaleDtype) Kernel {
	k.Scales = scales
	return k
}

func tiled(k Kernel, tile packing.Tile) Kernel {
	k.Tile, k.Order = tile, orderOf(tile)
	return k
}

// orderOf is the order of activations for the dot products of a tile: 16 bytes are 8 columns of two
// rows if kr is 16, and 4 columns of four rows if kr is 8.
func orderOf(tile packing.Tile) Order {
	if tile.KR == 16 {
		return Twice
	}
	return Row
}

func f16(tile packing.Tile, run func(*BlocksArgs)) Kernel {
	return Kernel{
		Feature: cpu.DotProd, Layout: packing.LayoutQSI4C32PF16, Bits: 4, Tile: tile, Order: orderOf(tile), Halves: true,
		Run: blocks(run)[0],
	}
}

func qai4c32p(tile packing.Tile, run func(*QAI4Args)) Kernel {
	return Kernel{
		Feature: cpu.DotProd, Layout: packing.LayoutQAI4C32P, Bits: 4, Tile: tile, Zeros: packing.ZeroF32, Order: orderOf(tile),
		Run: qai4s(run)[0],
	}
}

func torchao(bits uint8, zeros packing.ZeroKind, sumFactor int32, run func(*TorchAOArgs)) Kernel {
	return Kernel{
		Feature: cpu.DotProd, Layout: packing.LayoutTorchAOLinear, Bits: bits, Tile: packing.DefaultTile, Zeros: zeros,
		Order: Twice, SumFactor: sumFactor, CenterSums: zeros != packing.ZeroNone, Run: func(c *Call) { run(&c.torchAO) },
	}
}

// channel describes a kernel of a layout with one scale a row. A function that multiplies codes q +
// offset has the sumFactor -offset.
func channel(feature string, layout packing.Layout, bits uint8, tile packing.Tile, order Order, sumFactor int32, run func(*ChannelArgs)) Kernel {
	return Kernel{
		Feature: feature, Layout: layout, Bits: bits, Tile: tile, Order: order, SumFactor: sumFactor, Run: channels(run)[0],
	}
}
