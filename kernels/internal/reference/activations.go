package reference

import (
	"fmt"

	"github.com/lowbit-go/gq/kernels/internal/act"
	"github.com/lowbit-go/gq/packing"
)

// Activations are m quantized rows of K columns; K32 is K rounded up to 32. The layout of the
// weights decides which fields besides Q are used; the others may be nil.
type Activations struct {
	Q []int8 // [m][K32], 0 past the last column
	// Zero and Rec are the zero point and the scale of each row, for all layouts but qsi4c32p-f16
	// and qai4c32p.
	Zero []int32
	Rec  []float32
	// BlockScale is the scale of each block of columns, [m][blocks], for qsi4c32p-f16 and qai4c32p.
	// Blocks are the groups of the weights. BlockSum is the sum of a block's codes times its scale,
	// for qai4c32p.
	BlockScale, BlockSum []float32
	// Bad[i] reports whether the outputs of row i are NaN; nil if there are none.
	Bad []bool
}

// Quantize quantizes m rows of activations as the layout defines.
func (o *Operator) Quantize(x []float32, m int) *Activations {
	if len(x) != m*o.cols {
		panic(fmt.Sprintf("reference: %d activations for %d x %d", len(x), m, o.cols))
	}
	a := &Activations{Q: make([]int8, m*o.stride), Bad: make([]bool, m)}
	switch o.h.Layout {
	case packing.LayoutQSI4C32PF16:
		a.BlockScale = make([]float32, m*o.groups)
	case packing.LayoutQAI4C32P:
		a.BlockScale, a.BlockSum = make([]float32, m*o.groups), make([]float32, m*o.groups)
	default:
		a.Zero, a.Rec = make([]int32, m), make([]float32, m)
	}
	for i := range m {
		row, q, ok := x[i*o.cols:][:o.cols], a.Q[i*o.stride:][:o.stride], false
		switch from, to := i*o.groups, (i+1)*o.groups; o.h.Layout {
		case packing.LayoutQSI4C32PF16:
			ok = act.BlocksF16(q, a.BlockScale[from:to], row, o.group)
		case packing.LayoutQAI4C32P:
			ok = act.BlocksF32(q, a.BlockScale[from:to], a.BlockSum[from:to], row, o.group)
		default:
			a.Zero[i], a.Rec[i], ok = act.Asymmetric(q, row)
		}
		a.Bad[i] = !ok
	}
	return a
}

// check panics unless the fields have the lengths for m rows.
func (a *Activations) check(o *Operator, m int) {
	zeros, scales, sums := m, 0, 0
	switch o.h.Layout {
	case packing.LayoutQSI4C32PF16:
		zeros, scales = 0, m*o.groups
	case packing.LayoutQAI4C32P:
		zeros, scales, sums = 0, m*o.groups, m*o.groups
	}
	if len(a.Q) != m*o.stride || len(a.Zero) < zeros || len(a.Rec) < zeros || len(a.BlockScale) < scales || len(a.BlockSum) < sums || a.Bad != nil && len(a.Bad) < m {
		panic(fmt.Sprintf("reference: %d rows of %s activations with %d codes, %d zero points, %d scales, %d scales and %d sums of blocks; want %d, %d, %d, %d and %d",
			m, o.h.Layout, len(a.Q), len(a.Zero), len(a.Rec), len(a.BlockScale), len(a.BlockSum), m*o.stride, zeros, zeros, scales, sums))
	}
}
