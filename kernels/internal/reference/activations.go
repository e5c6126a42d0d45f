package reference

import (
	"fmt"

	"github.com/lowbit-go/gq/kernels/internal/act"
	"github.com/lowbit-go/gq/packing"
)

// Activations are m quantized rows of K columns; K32 is K rounded up to 32. Which fields beside Q are used, the layout
// of the weights says; the others may be nil.
type Activations struct {
	Q []int8 // [m][K32], 0 past the last column
	// Zero is the zero point and Rec the scale of each row: for all layouts but the two with blocks.
	Zero []int32
	Rec  []float32
	// BlockScale is the scale of each block of columns, which are the weights' groups, [m][blocks]: qsi4c32p-f16 and
	// qai4c32p. BlockSum is the sum of its codes times the scale: qai4c32p.
	BlockScale, BlockSum []float32
	// Bad says of each row whether its outputs are NaN; nil if none are.
	Bad []bool
}

// Quantize quantizes m rows of activations as the layout wants them.
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

// check panics unless a has what m rows need.
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
