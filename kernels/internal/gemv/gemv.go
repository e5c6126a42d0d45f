// Package gemv multiplies one row of int8 activations with packed weights, reading the packed bytes as they lie in the
// file: bit planes are unpacked in registers. Products that have no kernel here go through package tile.
package gemv

import (
	"slices"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

// Order is how a kernel wants its row of activations.
type Order uint8

const (
	// Row is row-major: K rounded up to 32 bytes, 0 past K.
	Row Order = iota
	// Twice has each 8 activations twice, one copy behind the other: 2 * K rounded up to 32 bytes. Two rows of a tile
	// with 8 columns each then meet a vector of activations without a shuffle.
	Twice
)

// Args are the arguments of a product.
type Args struct {
	Dst        *float32 // Panels x nr outputs
	Data       *byte    // the first panel
	PanelBytes int
	Panels     int   // at least 1
	Acts       *int8 // in the kernel's Order
	Sums       *int32
	Groups     int // groups in a row
	Blocks     int // blocks of 32 columns in a group
	LastBlocks int // blocks in the last group
	NegZero    float32
	NegZeroInt int32
	Rec        float32
}

// Kernel is one product. What it computes is what the portable reference of its layout computes, bit for bit:
//
// lowbit, per row of a panel: for each group, t = dot(a, q) - z*sum(a) exactly (z = -1/2 on the half-step grid),
// f = fma(float32(t), scale, f); then f = fma(row sum, NegZero, f); out = float32(f * Rec) + bias.
//
// qsi4cxp, qsi8cxp: A = dot + row sum * NegZeroInt in int32; out = float32(float32(A) * float32(row scale * Rec)) + bias.
//
// Any NaN is written as 0x7fc00000.
type Kernel struct {
	Name    string // "gemv_lowbit4_8x16x2_dotprod"
	Feature string // neon, dotprod, avx2, avx512vnni
	Layout  packing.Layout
	Bits    uint8
	Tile    packing.Tile
	Zeros   packing.ZeroKind // ZeroNone, or ZeroInt8 for the variant that reads zero points
	Grid    packing.Grid
	Order   Order
	// SumFactor is what the driver multiplies the sums of activations with before it passes them as Sums[group]; 0: the
	// kernel does not read Sums. (A kernel on unsigned codes q + 8 without zero points wants -8.)
	SumFactor int32
	Run       func(a *Args)
}

// Reads is what payloads a Kernel reads.
type Reads struct {
	Layout packing.Layout
	Bits   uint8
	Tile   packing.Tile
	Zeros  packing.ZeroKind
	Grid   packing.Grid
}

// families are the kernels for each kind of payload; nil is the portable one. There is none: package tile has it.
var families = map[Reads]*cpu.Family[*Kernel]{}

// all are the kernels in the order in which they were registered.
var all []*Kernel

func register(kernels ...Kernel) {
	for _, k := range kernels {
		r := Reads{k.Layout, k.Bits, k.Tile, k.Zeros, k.Grid}
		if families[r] == nil {
			families[r] = cpu.NewFamily[*Kernel]("gemv", nil)
		}
		families[r].Register(k.Feature, &k)
		all = append(all, &k)
	}
}

// Kernels lists all kernels of this build, whether or not this CPU can run them.
func Kernels() []*Kernel { return slices.Clone(all) }

// For gives the kernel for the best of some instruction sets; nil if there is none for such payloads.
//
// Lowbit kernels are for BF16 scales and groups of a multiple of 32 columns (or one group a row, of any length: codes
// past K are 0, and so are the activations there).
func For(r Reads, features []string) *Kernel {
	if f := families[r]; f != nil {
		return f.For(features).Code
	}
	return nil
}
