package reference

import (
	"encoding/binary"
	"math"

	"github.com/lowbit-go/gq/packing"
)

// weights is one row of weights: its codes and the numbers stored with them. A field that the
// layout lacks is nil or 0.
type weights struct {
	codes     []int8    // of all columns
	scales    []float32 // one per group; qsi4cxp and qai4c32p store 1/16 of the scale
	zeros     []int8    // integer zero points, one per group
	zeroTerms []float32 // qai4c32p's zero points, one per group
	sum       float32   // of the row's weights: lowbit
	sumCodes  int32     // sum of the row's codes, times 16 in qsi4cxp
	bias      float32
}

// read sets w to row r of a panel, which is row row of the matrix. src holds the panel's bytes.
func (o *Operator) read(w *weights, panel *packing.Panel, src []byte, row, r int) {
	codes, nr := o.packer.PackedCols(), int(o.h.Tile.NR)
	*w = weights{codes: panel.Codes[r*codes:][:o.cols], scales: panel.Scales[r*o.groups:][:o.groups], zeroTerms: w.zeroTerms[:0]}
	if panel.Zeros != nil {
		w.zeros = panel.Zeros[r*o.groups:][:o.groups]
	}
	switch o.h.Layout {
	case packing.LayoutQSI4CXP, packing.LayoutQSI8CXP, packing.LayoutQSU2CXP:
		// The panel ends with nr sums, nr scales and nr biases.
		tail := src[len(src)-3*4*nr:]
		w.sumCodes = int32(binary.LittleEndian.Uint32(tail[4*r:]))
		w.scales[0] = float32At(tail, nr+r)
		w.bias = float32At(tail, 2*nr+r)
	case packing.LayoutQAI4C32P:
		// Each group is nr rows of codes, nr zero terms, nr scales; nr biases follow.
		group := nr*o.group/2 + 2*4*nr
		for g := range o.groups {
			record := src[g*group+nr*o.group/2:]
			w.zeroTerms = append(w.zeroTerms, float32At(record, r))
			w.scales[g] = float32At(record, nr+r)
		}
		w.bias = float32At(src[o.groups*group:], r)
	default:
		w.bias = o.packer.Bias(o.data, row)
	}
	if l, ok := o.packer.(interface {
		Sum(data []byte, row int) float32
	}); ok {
		w.sum = l.Sum(o.data, row)
	}
}

// float32At reads the i-th float32 of b.
func float32At(b []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}
