package rounding

import (
	"cmp"
	"fmt"

	"github.com/lowbit-go/gq/packing"
)

// NonFiniteError says that a weight is NaN or infinite.
type NonFiniteError struct {
	Column int     // index within the row
	Value  float32 // NaN or an infinity
}

func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("the weight in column %d is %v: only finite weights can be quantized", e.Column, e.Value)
}

// SkipAdvice always helps against a tensor that cannot be quantized.
const SkipAdvice = "leave the tensor unquantized with a rule NAME=skip"

// ScaleError says that the dtype of the stored scales, or a layout, cannot store the scale of a
// group because the scale is too large. When a file is repacked, the scale may also be too small.
type ScaleError struct {
	Group int                // index within the row
	Scale float32            // before rounding to Dtype
	Dtype packing.ScaleDtype // of the stored scales
	// Smallest magnitude that the layout stores. Default (0): the dtype's.
	Smallest float32
	// Advice says what to do. Default: SkipAdvice.
	Advice string
}

func (e *ScaleError) Error() string {
	return fmt.Sprintf("group %d needs the scale %g, outside the range of %s scales here (%g to %g): %s",
		e.Group, e.Scale, e.Dtype, cmp.Or(e.Smallest, e.Dtype.Smallest()), e.Dtype.Max(), cmp.Or(e.Advice, SkipAdvice))
}

// SumError says that the stored sum of a row's weights is not finite: the weights are too large.
type SumError struct {
	Sum float32 // NaN or an infinity
	// Advice says what to do. Default: SkipAdvice.
	Advice string
}

func (e *SumError) Error() string {
	return fmt.Sprintf("the sum of the row's quantized weights is %v, and the layout stores only finite sums: %s", e.Sum, cmp.Or(e.Advice, SkipAdvice))
}
