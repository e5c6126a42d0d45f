package kernels

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/kernels/floatmm"
	"github.com/lowbit-go/gq/internal/kernels/gemv"
	"github.com/lowbit-go/gq/internal/kernels/ggml"
	"github.com/lowbit-go/gq/internal/kernels/tile"
	"github.com/lowbit-go/gq/packing"
)

// The costs by which kernels are chosen. An operator compares kernels of one machine only, so each
// architecture has its own unit:
//   - amd64 and generic: picoseconds per weight on a core of an EPYC (Zen 4), with everything in
//     the first-level cache: go run -C tools ./kernels -costs time. Zen 4 lacks AVX-VNNI: its costs
//     were measured on a Zen 5 and multiplied by 1.3, the ratio of AVX2's costs on the two CPUs.
//   - arm64: executed instructions per thousand weights in the same benchmark, counted under qemu:
//     go run -C tools ./kernels -costs instructions
//
// The choice is good even where these costs are not exact: a gemv kernel costs two to five times
// less than unpacking and multiplying a row, and loses as slowly with every further row.

type costs struct {
	// A step of m rows of activations costs step + m*row per weight; row4 is for codes of up to 4
	// bits, row7 and row8 are for 7 and 8 bits.
	step, row4, row, row7, row8 float64
	// Unpacking costs unpack per weight, by bits-1, and record per group of a packed panel.
	unpack [8]float64
	record float64
	// gemv are the costs of lowbit's gemv kernels, by bits-1, torchao the costs of torchao-linear's,
	// and layouts the costs of the gemv kernels of layouts with a single width.
	gemv    [8]float64
	torchao [8]float64
	layouts map[packing.Layout]float64
	// Of ggml's blocks: the costs of unpacking a weight (default: portableBlocks), and of the gemv
	// kernels (see rowsCost).
	blocks, rows map[string]float64
}

// portableBlocks is the cost of unpacking a weight of ggml's blocks by the portable function.
const portableBlocks = 1000

// unpackNEON is shared by all instruction sets of arm64.
var unpackNEON = [8]float64{380, 370, 390, 340, 400, 380, 390, 290}

// blocksAVX2 and rowsAVX2 are the costs of ggml's blocks on amd64, measured as AVX-VNNI's.
var blocksAVX2 = map[string]float64{
	"Q2_K": 70, "Q3_K": 62, "Q4_K": 62, "Q5_K": 64, "Q6_K": 60, "IQ4_XS": 52, "TQ2_0": 44, "TQ1_0": 51,
	"Q4_0": 51, "Q4_1": 57, "Q5_0": 55, "Q5_1": 59, "Q8_0": 49, "IQ4_NL": 49, "MXFP4": 55, "NVFP4": 105,
	"IQ2_XXS": 88, "IQ2_XS": 94, "IQ2_S": 94, "IQ3_XXS": 110, "IQ3_S": 128, "IQ1_S": 79, "IQ1_M": 93,
}

var rowsAVX2 = map[string]float64{
	"Q2_K": 26, "Q3_K": 35, "Q4_K": 28, "Q5_K": 33, "Q6_K": 31, "IQ4_XS": 38, "TQ2_0": 16, "TQ1_0": 44,
	"Q4_0": 24, "Q4_1": 27, "Q5_0": 39, "Q5_1": 42, "Q8_0": 25, "IQ4_NL": 35, "MXFP4": 42, "NVFP4": 92,
	"IQ2_XXS": 68, "IQ2_XS": 67, "IQ2_S": 71, "IQ3_XXS": 92, "IQ3_S": 124, "IQ1_S": 64, "IQ1_M": 70,
}

var rowsAVXVNNI = map[string]float64{"Q4_0": 22, "Q4_1": 24, "Q5_0": 35, "Q5_1": 37, "Q8_0": 22, "IQ4_NL": 25, "MXFP4": 39, "NVFP4": 92}

var rowsAVX512 = map[string]float64{
	"Q2_K": 20, "Q3_K": 25, "Q4_K": 23, "Q5_K": 24, "Q6_K": 21, "IQ4_XS": 29, "TQ2_0": 14,
	"Q4_0": 19, "Q4_1": 21, "Q5_0": 32, "Q5_1": 33, "Q8_0": 16, "IQ4_NL": 21, "MXFP4": 32, "NVFP4": 92,
}

// Of all instruction sets of arm64.
var blocksNEON = map[string]float64{
	"Q2_K": 493, "Q3_K": 614, "Q4_K": 399, "Q5_K": 560, "Q6_K": 513, "IQ4_XS": 431,
	"Q4_0": 438, "Q4_1": 470, "Q5_0": 720, "Q5_1": 751, "Q8_0": 376, "IQ4_NL": 501,
	"MXFP4": 660, "NVFP4": 740, "TQ1_0": 617, "TQ2_0": 306,
}

var rowsNEON = map[string]float64{
	"Q2_K": 503, "Q3_K": 687, "Q4_K": 402, "Q5_K": 562, "Q6_K": 585, "IQ4_XS": 476,
	"Q4_0": 363, "Q4_1": 388, "Q5_0": 644, "Q5_1": 669, "Q8_0": 324, "IQ4_NL": 449,
	"MXFP4": 480, "NVFP4": 730, "TQ1_0": 692, "TQ2_0": 363,
}

var rowsDotProd = map[string]float64{
	"Q2_K": 441, "Q3_K": 625, "Q4_K": 339, "Q5_K": 500, "Q6_K": 523, "IQ4_XS": 383,
	"Q4_0": 278, "Q4_1": 303, "Q5_0": 559, "Q5_1": 584, "Q8_0": 207, "IQ4_NL": 332,
	"MXFP4": 395, "NVFP4": 670, "TQ1_0": 630, "TQ2_0": 303,
}

var allCosts = map[string]costs{
	cpu.Generic: {step: 266, row4: 325, row: 326, row7: 325, row8: 328, unpack: [8]float64{363, 406, 399, 363, 434, 466, 533, 401}, record: 1216},
	cpu.AVX2: {
		step: 5.9, row4: 7, row: 9.8, row7: 12, row8: 18, unpack: [8]float64{13, 13, 17, 13, 16, 21, 25, 18}, record: 1089,
		gemv: [8]float64{13, 13, 19, 17, 19, 28, 33, 24},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 12, packing.LayoutQSI8CXP: 22, packing.LayoutQSU2CXP: 13, packing.LayoutQSI4C32PF16: 17, packing.LayoutQAI4C32P: 23,
		},
		blocks: blocksAVX2, rows: rowsAVX2,
	},
	cpu.AVXVNNI: {
		step: 6.4, row4: 5.7, row: 5.6, row7: 5.6, row8: 5.5, unpack: [8]float64{12, 14, 18, 13, 16, 25, 29, 22}, record: 1000,
		gemv: [8]float64{0, 0, 0, 14, 16, 23, 27, 17},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 11, packing.LayoutQSI8CXP: 13, packing.LayoutQSU2CXP: 11, packing.LayoutQSI4C32PF16: 14, packing.LayoutQAI4C32P: 21,
		},
		blocks: blocksAVX2, rows: rowsAVXVNNI,
	},
	cpu.AVX512: {
		step: 5, row4: 4.9, row: 4.9, row7: 4.9, row8: 4.9, unpack: [8]float64{10, 12, 20, 12, 14, 18, 22, 23}, record: 1556,
		gemv: [8]float64{11, 14, 23, 12, 15, 21, 26, 13},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 7.9, packing.LayoutQSI8CXP: 12, packing.LayoutQSU2CXP: 11, packing.LayoutQSI4C32PF16: 15, packing.LayoutQAI4C32P: 22,
		},
		blocks: blocksAVX2, rows: rowsAVX512,
	},
	cpu.NEON: {
		step: 110, row4: 255, row: 255, row7: 255, row8: 320, unpack: unpackNEON, record: 22000,
		gemv: [8]float64{0, 0, 0, 330, 0, 0, 0, 385}, layouts: map[packing.Layout]float64{packing.LayoutQSI4CXP: 270, packing.LayoutQSI8CXP: 290},
		blocks: blocksNEON, rows: rowsNEON,
	},
	cpu.DotProd: {
		step: 90, row4: 95, row: 95, row7: 95, row8: 95, unpack: unpackNEON, record: 22000,
		gemv: [8]float64{220, 245, 263, 213, 274, 254, 270, 163}, torchao: [8]float64{252, 260, 287, 240, 303, 280, 295, 185},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 147, packing.LayoutQSI8CXP: 100, packing.LayoutQSU2CXP: 145, packing.LayoutQSI4C32PF16: 225, packing.LayoutQAI4C32P: 245,
		},
		blocks: blocksNEON, rows: rowsDotProd,
	},
	cpu.I8MM: {step: 115, row4: 62, row: 62, row7: 62, row8: 62, unpack: unpackNEON, record: 22000, blocks: blocksNEON},
}

func gemvCost(k *gemv.Kernel) float64 {
	c := allCosts[k.Feature]
	switch k.Layout {
	case packing.LayoutLowbit:
		return c.gemv[k.Bits-1]
	case packing.LayoutTorchAOLinear:
		return c.torchao[k.Bits-1]
	}
	return c.layouts[k.Layout]
}

func rowsCost(k *ggml.Kernel) float64 { return allCosts[k.Feature].rows[k.Type.String()] }

func unpackCost(feature string, f *panelLayout) float64 {
	c := allCosts[feature]
	if f.ggml != nil {
		return cmp.Or(c.blocks[f.ggml.Type.String()], portableBlocks)
	}
	return c.unpack[f.bits-1] + c.record*float64(f.groups)/float64(f.nr*f.stored)
}

func stepCost(feature string, bits int, s *tile.Step) float64 {
	c := allCosts[feature]
	row := c.row
	switch {
	case s.Words:
	case bits <= 4 || s.Quads: // 5 bits and ggml's blocks: about as fast
		row = c.row4
	case bits == 7 || s.Group == nil: // about as fast
		row = c.row7
	case bits == 8:
		row = c.row8
	}
	return c.step + float64(s.MR)*row
}

// readRows is the number of rows of weights that floatmm reads at a time.
const readRows = 8

// ForwardBytes is the memory that Forward of [Rows] operators of these shapes takes in a Workspace.
func ForwardBytes(threads int, shapes []Shape) int64 {
	set := defaultFloats()
	input, own := 0, 0
	for _, s := range shapes {
		input = max(input, set.XLen(min(s.M, floatPassRows(set, s.Cols)), s.Cols))
		own = max(own, (set.NR+readRows)*s.Cols)
	}
	return 4 * (int64(input) + int64(threads)*int64(own))
}

// AddBytes is the memory that a Transposed takes for Add and AddGram of large matrices, in a
// Workspace of this many threads.
func AddBytes(threads int) int64 {
	set := defaultFloats()
	return 4 * int64(set.XLen(addRows, addDepth)+threads*set.NR*addDepth)
}

// defaultFloats are the kernels of an operator without Options.CPU. It panics if GQ_CPU names an
// instruction set that this CPU lacks, because no operator can be made then.
func defaultFloats() *floatmm.Set {
	features, err := Options{}.features()
	if err != nil {
		panic(err)
	}
	return floatmm.Sets.For(features).Code
}

type candidate struct {
	name string
	// nil: the operator's tile kernels
	gemv *gemv.Kernel
	rows *ggml.Kernel // likewise, of ggml's blocks

	cost   float64 // gemv, rows: cost of a row
	logged atomic.Bool
}

func (c *candidate) tiled() bool { return c.gemv == nil && c.rows == nil }

type selection struct {
	gemm   *candidate
	gemv   *candidate // nil if there is none
	set    tile.Set   // tile set of gemm
	tiling tiling
}

// newSelection selects the kernels for f. features goes from the least to the best.
func newSelection(f *panelLayout, features []string) selection {
	bits := f.bits
	if f.half {
		bits++
	}
	sets := tile.Sets.For(features)
	if f.ggml != nil {
		s := selection{set: blockSet(sets.Code, f.ggml), gemm: &candidate{name: blockGemmName(f.ggml, sets.Feature)}}
		s.tiling = newTiling(f, s.set)
		if k := ggml.KernelFor(f.ggml.Type, features); k != nil && f.rows >= k.Rows {
			s.gemv = &candidate{name: k.Name, rows: k, cost: rowsCost(k)}
		}
		return s
	}
	s := selection{set: sets.Code.Set(bits), gemm: &candidate{name: gemmName(f.header.Layout, f.bits, sets.Feature)}}
	s.tiling = newTiling(f, s.set)
	if k := gemvFor(f, features); k != nil {
		s.gemv = &candidate{name: k.Name, gemv: k, cost: gemvCost(k)}
	}
	return s
}

func gemmName(l packing.Layout, bits int, feature string) string {
	if l == packing.LayoutLowbit || l == packing.LayoutTorchAOLinear {
		return fmt.Sprintf("gemm_%s%d_%s", l, bits, feature)
	}
	return fmt.Sprintf("gemm_%s_%s", l, feature) // the layout's name implies the width
}

func gemvFor(f *panelLayout, features []string) *gemv.Kernel {
	h := f.header
	k := gemv.For(gemv.Reads{Layout: h.Layout, Scales: h.ScaleDtype, Bits: h.Bits, Tile: h.Tile, Zeros: h.ZeroKind, Grid: h.Grid}, features)
	if k == nil || k.For(f.groups, f.group) == nil {
		return nil
	}
	return k
}

// choose picks the cheaper way for m rows, at least 1: gemv row by row, or the tile kernels.
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
	all    cover     // of fewer rows than the largest step has
	few    cover     // of fewer than fewWords rows, without Words; empty if no step has Words
}

// cover is the best cover of each number of rows: its cost per weight and its first step.
type cover struct {
	costs []float64
	first []int
}

// fewWords is the number of rows from which making the words of a panel pays: on a Zen 1, IQ4_XS
// gains 13 % at 16 rows, Q8_0 1 % at 24, and loses 12 % at 8.
const fewWords = 16

func newTiling(f *panelLayout, set tile.Set) tiling {
	x := tiling{steps: set.Steps, unpack: unpackCost(set.Feature, f)}
	for i := range set.Steps {
		x.costs = append(x.costs, stepCost(set.Feature, f.bits, &set.Steps[i]))
	}
	x.solve()
	return x
}

// solve finds the best covers.
func (x *tiling) solve() {
	x.all, x.few = x.cover(0, x.steps[0].MR), cover{}
	if words := slices.IndexFunc(x.steps, func(s tile.Step) bool { return !s.Words }); words > 0 {
		x.few = x.cover(words, fewWords)
	}
}

// cover finds the best cover by steps[from:] for every number of rows below n, at the least total
// cost. Surplus rows of a step are padding.
func (x *tiling) cover(from, n int) cover {
	c := cover{make([]float64, n), make([]int, n)}
	for m := 1; m < n; m++ {
		for i := from; i < len(x.steps); i++ {
			if cost := x.costs[i] + c.costs[max(m-x.steps[i].MR, 0)]; i == from || cost < c.costs[m] {
				c.costs[m], c.first[m] = cost, i
			}
		}
	}
	return c
}

// cost is the cost of unpacking a weight and multiplying m rows.
func (x *tiling) cost(m int) float64 {
	if m < len(x.few.costs) {
		return x.unpack + x.few.costs[m]
	}
	largest := x.steps[0].MR
	return x.unpack + float64(m/largest)*x.costs[0] + x.all.costs[m%largest]
}

func (x *tiling) tiles(tiles []rowTile, m int) []rowTile {
	row, at := 0, 0
	for row < m {
		step := 0
		switch rest := m - row; {
		case m < len(x.few.first):
			step = x.few.first[rest]
		case rest < x.steps[0].MR:
			step = x.all.first[rest]
		}
		mr := x.steps[step].MR
		tiles = append(tiles, rowTile{row: row, at: at, step: step, valid: min(mr, m-row)})
		row, at = row+mr, at+mr
	}
	return tiles
}
