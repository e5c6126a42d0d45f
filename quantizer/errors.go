package quantizer

import (
	"cmp"
	"fmt"

	"github.com/lowbit-go/gq/packing"
)

// NonFiniteError says that a weight is NaN or infinite. It has no code, and a group
// with an infinity has no scale.
type NonFiniteError struct {
	Column int     // index within the row
	Value  float32 // NaN or an infinity
}

func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("the weight in column %d is %v: only finite weights can be quantized", e.Column, e.Value)
}

// ScaleError says that the scale of a group of weights is not a normal number of the
// dtype that scales are stored in: the weights are too small for it, or too large.
type ScaleError struct {
	Group int                // index within the row
	Scale float32            // before it is rounded to Dtype
	Dtype packing.ScaleDtype // of the stored scales
	// Smallest magnitude that the layout holds, where that is not the dtype's smallest normal number. Default: 0.
	Smallest float32
}

func (e *ScaleError) Error() string {
	todo := "keep the tensor as it is with a rule NAME=skip"
	if e.Smallest == 0 && packing.ScaleF32.IsNormal(e.Scale) {
		todo = "store f32 scales, or " + todo
		if packing.ScaleBF16.IsNormal(packing.ScaleBF16.Round(e.Scale)) {
			todo = "store bf16 scales"
		}
	}
	return fmt.Sprintf("group %d needs the scale %g, outside the normal range of %s (%g to %g): %s",
		e.Group, e.Scale, e.Dtype, cmp.Or(e.Smallest, e.Dtype.SmallestNormal()), e.Dtype.Max(), todo)
}

// TensorError says which row of which tensor of a checkpoint could not be quantized.
type TensorError struct {
	File   string // of the checkpoint
	Tensor string
	Slice  int   // expert of a fused tensor; -1 if the tensor is one matrix
	Row    int64 // output, within the slice
	Err    error // *NonFiniteError or *ScaleError
}

func (e *TensorError) Error() string {
	slice := ""
	if e.Slice >= 0 {
		slice = fmt.Sprintf(" expert %d,", e.Slice)
	}
	return fmt.Sprintf("%s: tensor %q,%s row %d: %v", e.File, e.Tensor, slice, e.Row, e.Err)
}

// Unwrap returns e.Err.
func (e *TensorError) Unwrap() error { return e.Err }

// RequestError says that a job was asked for that cannot be done, whatever is
// tried: a rule that matches nothing, an output that is an input. A command
// line's user has used it wrongly.
type RequestError struct{ err error }

func (e *RequestError) Error() string { return e.err.Error() }

// Unwrap returns what is wrong.
func (e *RequestError) Unwrap() error { return e.err }

func requestf(format string, args ...any) error {
	return &RequestError{fmt.Errorf(format, args...)}
}
