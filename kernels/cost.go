package kernels

import (
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/kernels/internal/gemv"
	"github.com/lowbit-go/gq/packing"
)

// The costs by which kernels are chosen. An operator compares kernels of one machine only, so each
// architecture has its own unit:
//   - amd64 and generic: picoseconds per weight on one core of an EPYC (Zen 4), with everything in
//     the first-level cache: go run ./docs/kernels -costs time. AVX-VNNI, which a Zen 4 lacks, was
//     measured on a Zen 5; its costs are 1.3 times the measured ones, the ratio of AVX2's costs on
//     the two.
//   - arm64: executed instructions per thousand weights in the same benchmark, counted under qemu:
//     go run ./docs/kernels -costs instructions
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
	cpu.Generic: {step: 266, row4: 325, row: 326, row7: 325, row8: 328, unpack: [8]float64{363, 406, 399, 363, 434, 466, 533, 401}, record: 1216},
	cpu.AVX2: {
		step: 5.9, row4: 7, row: 9.8, row7: 12, row8: 18, unpack: [8]float64{13, 13, 17, 13, 16, 21, 25, 18}, record: 1089,
		gemv: [8]float64{13, 13, 19, 17, 19, 28, 33, 24},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 12, packing.LayoutQSI8CXP: 22, packing.LayoutQSU2CXP: 13, packing.LayoutQSI4C32PF16: 17, packing.LayoutQAI4C32P: 23,
		},
	},
	cpu.AVXVNNI: {
		step: 6.4, row4: 5.7, row: 5.6, row7: 5.6, row8: 5.5, unpack: [8]float64{12, 14, 18, 13, 16, 25, 29, 22}, record: 1000,
		gemv: [8]float64{0, 0, 0, 14, 16, 23, 27, 17},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 11, packing.LayoutQSI8CXP: 13, packing.LayoutQSU2CXP: 11, packing.LayoutQSI4C32PF16: 14, packing.LayoutQAI4C32P: 21,
		},
	},
	cpu.AVX512: {
		step: 5, row4: 4.9, row: 4.9, row7: 4.9, row8: 4.9, unpack: [8]float64{10, 12, 20, 12, 14, 18, 22, 23}, record: 1556,
		gemv: [8]float64{11, 14, 23, 12, 15, 21, 26, 13},
		layouts: map[packing.Layout]float64{
			packing.LayoutQSI4CXP: 7.9, packing.LayoutQSI8CXP: 12, packing.LayoutQSU2CXP: 11, packing.LayoutQSI4C32PF16: 15, packing.LayoutQAI4C32P: 22,
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
