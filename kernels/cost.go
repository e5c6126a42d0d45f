package kernels

import (
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/kernels/internal/gemv"
	"github.com/lowbit-go/gq/packing"
)

// The costs by which kernels are chosen. An operator compares kernels of one machine only, so each
// architecture has its own unit:
//   - amd64 and generic: picoseconds per weight on one core of an EPYC (Zen 5), with everything in
//     the first-level cache: the least of 12 runs of BenchmarkCosts
//   - arm64: executed instructions per thousand weights in the same benchmark, counted under qemu
//
// The choice is good even where these costs are not exact: a gemv kernel costs two to five times
// less than unpacking and multiplying one row, and loses as slowly with every further row.

// costs are the costs of an instruction set.
type costs struct {
	// A step of m rows of activations costs step + m*row per weight; row4 is for codes of up to 4
	// bits, row7 and row8 are for 7 and 8 bits.
	step, row4, row, row7, row8 float64
	// Unpacking costs unpack per weight, by bits-1, and record per group of a packed panel.
	unpack [8]float64
	record float64
	// gemv are the costs of the gemv kernels of lowbit, by bits-1, and torchao the costs of the gemv
	// kernels of torchao-linear; layouts are the costs of the gemv kernels of layouts that have one
	// width.
	gemv    [8]float64
	torchao [8]float64
	layouts map[packing.Layout]float64
}

// unpackNEON is shared by all instruction sets of arm64.
var unpackNEON = [8]float64{380, 370, 390, 340, 400, 380, 390, 290}

var allCosts = map[string]costs{
	cpu.Generic: {step: 130, row4: 280, row: 280, row7: 280, row8: 280, unpack: [8]float64{260, 290, 300, 250, 310, 330, 400, 280}, record: 5000},
	cpu.AVX2: {
		step: 5, row4: 4.9, row: 7.7, row7: 9.3, row8: 14, unpack: [8]float64{14, 14, 17, 13, 16, 22, 24, 17}, record: 700,
		gemv: [8]float64{12, 12, 16, 13, 15, 22, 25, 20},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 10, packing.LayoutQSI8CXP: 18, packing.LayoutQSU2CXP: 9.4, packing.LayoutQSI4C32PF16: 15, packing.LayoutQAI4C32P: 21,
		},
	},
	cpu.AVX512: {
		step: 2.4, row4: 2.3, row: 2.3, row7: 2.3, row8: 2.3, unpack: [8]float64{14, 15, 18, 12, 14, 17, 20, 14}, record: 700,
		gemv: [8]float64{6, 7, 12, 6, 7, 10, 13, 7},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 4.6, packing.LayoutQSI8CXP: 8.2, packing.LayoutQSU2CXP: 5, packing.LayoutQSI4C32PF16: 8, packing.LayoutQAI4C32P: 12,
		},
	},
	cpu.NEON: {
		step: 110, row4: 255, row: 255, row7: 255, row8: 320, unpack: unpackNEON, record: 22000,
		gemv: [8]float64{0, 0, 0, 330, 0, 0, 0, 385}, layouts: map[packing.Layout]float64{packing.LayoutQSI4CXP: 270, packing.LayoutQSI8CXP: 290},
	},
	cpu.DotProd: {
		step: 90, row4: 95, row: 95, row7: 95, row8: 95, unpack: unpackNEON, record: 22000,
		gemv: [8]float64{220, 245, 263, 213, 274, 254, 270, 163}, torchao: [8]float64{252, 260, 287, 240, 303, 280, 295, 185},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 147, packing.LayoutQSI8CXP: 100, packing.LayoutQSU2CXP: 145, packing.LayoutQSI4C32PF16: 225, packing.LayoutQAI4C32P: 245,
		},
	},
	cpu.I8MM: {step: 115, row4: 62, row: 62, row7: 62, row8: 62, unpack: unpackNEON, record: 22000},
}

// gemvCost is the cost of a gemv kernel per weight.
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

// unpackCost is the cost of unpacking f's panels, per weight.
func unpackCost(feature string, f *panelLayout) float64 {
	c := allCosts[feature]
	return c.unpack[f.bits-1] + c.record*float64(f.groups)/float64(f.nr*f.stored)
}

// stepCost is the cost of a step of mr rows per weight, for codes of the given bits.
func stepCost(feature string, bits, mr int) float64 {
	c := allCosts[feature]
	row := c.row
	switch {
	case bits <= 4:
		row = c.row4
	case bits == 7:
		row = c.row7
	case bits == 8:
		row = c.row8
	}
	return c.step + float64(mr)*row
}
