package quantizer

import (
	"fmt"
)

// TensorError names the row and the tensor of a checkpoint that could not be quantized.
type TensorError struct {
	File   string // of the checkpoint
	Tensor string
	Slice  int   // expert of a fused tensor; -1 if the tensor is one matrix
	Row    int64 // output, within the slice
	Err    error // *NonFiniteError, *ScaleError or *SumError
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

// RequestError says that a job is impossible for any weights: a rule matches nothing, or an output
// is an input. It is a usage error of the command line.
type RequestError struct{ err error }

func (e *RequestError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.err }

// Requestf makes a *RequestError.
func Requestf(format string, args ...any) error {
	return &RequestError{fmt.Errorf(format, args...)}
}
