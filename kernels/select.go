package kernels

import (
	"fmt"
	"sync/atomic"

	"github.com/lowbit-go/gq/kernels/internal/gemv"
	"github.com/lowbit-go/gq/kernels/internal/tile"
	"github.com/lowbit-go/gq/packing"
)

// candidate is a kernel that can serve an operator.
type candidate struct {
	name   string
	gemv   *gemv.Kernel // nil: the operator's tile kernels
	cost   float64      // gemv: cost of a row
	logged atomic.Bool
}

// selection holds the kernels that can serve an operator on a CPU.
type selection struct {
	gemm   *candidate
	gemv   *candidate // nil if there is none
	set    tile.Set   // tile set of gemm
	tiling tiling
}

// newSelection selects the kernels for f from instruction sets, which are listed from the least to
// the best.
func newSelection(f *panelLayout, features []string) selection {
	bits := f.bits
	if f.half {
		bits++
	}
	sets := tile.Sets.For(features)
	s := selection{set: sets.Code.Set(bits), gemm: &candidate{name: gemmName(f.header.Layout, f.bits, sets.Feature)}}
	s.tiling = newTiling(f, s.set)
	if k := gemvFor(f, features); k != nil {
		s.gemv = &candidate{name: k.Name, gemv: k, cost: gemvCost(k)}
	}
	return s
}

// gemmName is the name of the tile kernels of a layout.
func gemmName(l packing.Layout, bits int, feature string) string {
	if l == packing.LayoutLowbit || l == packing.LayoutTorchAOLinear {
		return fmt.Sprintf("gemm_%s%d_%s", l, bits, feature)
	}
	return fmt.Sprintf("gemm_%s_%s", l, feature) // the layout's name implies the width
}

// gemvFor is the gemv kernel that reads payloads of f, or nil if there is none.
func gemvFor(f *panelLayout, features []string) *gemv.Kernel {
	h := f.header
	k := gemv.For(gemv.Reads{Layout: h.Layout, Scales: h.ScaleDtype, Bits: h.Bits, Tile: h.Tile, Zeros: h.ZeroKind, Grid: h.Grid}, features)
	if k == nil || k.For(f.groups, f.group) == nil {
		return nil
	}
	return k
}

// choose picks the cheaper kernel for m rows: the gemv kernel row by row, or the tile kernels. m
// below 1 counts as 1.
func (s *selection) choose(m int) *candidate {
	m = max(m, 1)
	if s.gemv != nil && float64(m)*s.gemv.cost <= s.tiling.cost(m) {
		return s.gemv
	}
	return s.gemm
}

// tiling cuts m rows into the steps of a tile.Set at the least cost.
type tiling struct {
	steps  []tile.Step
	unpack float64   // cost of unpacking, per weight
	costs  []float64 // cost of each step, per weight
	rest   []float64 // cost of the best cover of n rows, n below the largest step
	first  []int     // first step of the best cover of n rows
}

func newTiling(f *panelLayout, set tile.Set) tiling {
	x := tiling{steps: set.Steps, unpack: unpackCost(set.Feature, f)}
	for _, s := range set.Steps {
		x.costs = append(x.costs, stepCost(set.Feature, f.bits, s.MR))
	}
	x.solve()
	return x
}

// solve finds the best cover for every remainder: steps with at least as many rows, at the least
// total cost. Surplus rows of a step are padding.
func (x *tiling) solve() {
	largest := x.steps[0].MR
	x.rest, x.first = make([]float64, largest), make([]int, largest)
	for n := 1; n < largest; n++ {
		for i, s := range x.steps {
			if c := x.costs[i] + x.rest[max(n-s.MR, 0)]; i == 0 || c < x.rest[n] {
				x.rest[n], x.first[n] = c, i
			}
		}
	}
}

// cost is the cost of unpacking a weight and multiplying it with m rows.
func (x *tiling) cost(m int) float64 {
	largest := x.steps[0].MR
	return x.unpack + float64(m/largest)*x.costs[0] + x.rest[m%largest]
}

// tiles appends the tiles of m rows.
func (x *tiling) tiles(tiles []rowTile, m int) []rowTile {
	row, at := 0, 0
	for row < m {
		step := 0
		if m-row < x.steps[0].MR {
			step = x.first[m-row]
		}
		mr := x.steps[step].MR
		tiles = append(tiles, rowTile{row: row, at: at, step: step, valid: min(mr, m-row)})
		row, at = row+mr, at+mr
	}
	return tiles
}
