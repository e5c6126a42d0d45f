//go:build !purego

package gemv

import (
	"fmt"
	"strings"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

func lowbit(feature string, bits uint8, zeros packing.ZeroKind, grid packing.Grid, sumFactor int32, run, split func(*Args)) Kernel {
	scheme := ""
	switch {
	case zeros == packing.ZeroInt8:
		scheme = "_zeros"
	case zeros == packing.ZeroFraction:
		scheme = "_fractions"
	case grid != packing.GridInteger:
		scheme = "_half"
	}
	return Kernel{
		Name:    fmt.Sprintf("gemv_lowbit%d%s_%s_%s", bits, scheme, packing.DefaultTile, feature),
		Feature: feature, Layout: packing.LayoutLowbit, Bits: bits, Tile: packing.DefaultTile, Zeros: zeros, Grid: grid,
		Order: Twice, SumFactor: sumFactor, Run: run, RunSplit: split,
	}
}

func scaled(k Kernel, scales packing.ScaleDtype) Kernel {
	k.Name = strings.Replace(k.Name, "_"+k.Tile.String(), "_"+scales.String()+"_"+k.Tile.String(), 1)
	k.Scales = scales
	return k
}

func tiled(k Kernel, tile packing.Tile) Kernel {
	k.Name = strings.Replace(k.Name, k.Tile.String(), tile.String(), 1)
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

// unsigned is k for a function that multiplies codes q + offset.
func unsigned(k Kernel, offset int32) Kernel {
	k.SumFactor = -offset
	return k
}

// blocks describes a kernel of a 4-bit layout with an activation scale for each group.
func blocks(feature string, layout packing.Layout, tile packing.Tile, run func(*Args)) Kernel {
	k := channel(feature, layout, 4, tile, orderOf(tile), run)
	if layout == packing.LayoutQAI4C32P {
		k.Zeros = packing.ZeroF32
	} else {
		k.Halves = true
	}
	return k
}

func torchao(bits uint8, zeros packing.ZeroKind, sumFactor int32, run func(*Args)) Kernel {
	k := channel(cpu.DotProd, packing.LayoutTorchAOLinear, bits, packing.DefaultTile, Twice, run)
	k.Name = fmt.Sprintf("gemv_%s%d_%s_%s", k.Layout, bits, k.Tile, cpu.DotProd)
	k.Zeros, k.SumFactor = zeros, sumFactor
	if zeros != packing.ZeroNone {
		k.Name = fmt.Sprintf("gemv_%s%d_zeros_%s_%s", k.Layout, bits, k.Tile, cpu.DotProd)
		k.CenterSums = true
	}
	return k
}

func channel(feature string, layout packing.Layout, bits uint8, tile packing.Tile, order Order, run func(*Args)) Kernel {
	return Kernel{
		Name:    fmt.Sprintf("gemv_%s_%s_%s", layout, tile, feature),
		Feature: feature, Layout: layout, Bits: bits, Tile: tile, Order: order, Run: run,
	}
}
