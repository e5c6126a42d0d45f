package forward

import (
	"math"

	"github.com/lowbit-go/gq/kernels"
)

// roundedInputs rounds the inputs of an operator to int8, with a scale for each block of a row.
//
// Source: QuantizeARow_CompInt8_avx512 in onnxruntime/core/mlas/lib/sqnbitgemm_kernel_avx512.cpp.
type roundedInputs struct {
	op    *kernels.Rows
	block int
}

func (r *roundedInputs) Activations() string { return ONNX.String() }

func (r *roundedInputs) Rows() int           { return r.op.Rows() }
func (r *roundedInputs) Cols() int           { return r.op.Cols() }
func (r *roundedInputs) Kernel(m int) string { return r.op.Kernel(m) }

func (r *roundedInputs) Forward(w *kernels.Workspace, dst, x []float32, m int) error {
	return r.op.Forward(w, dst, r.round(x), m)
}

func (r *roundedInputs) ForwardClamped(w *kernels.Workspace, dst, x []float32, m int, lo, hi float32) error {
	return r.op.ForwardClamped(w, dst, r.round(x), m, lo, hi)
}

// round returns rounded rows. A block with NaN or Inf is not rounded.
func (r *roundedInputs) round(x []float32) []float32 {
	out := make([]float32, len(x))
	for len(x) >= r.Cols() {
		for from := 0; from < r.Cols(); from += r.block {
			to := min(from+r.block, r.Cols())
			roundBlock(out[len(out)-len(x):][from:to], x[from:to])
		}
		x = x[r.Cols():]
	}
	return out
}

func roundBlock(dst, x []float32) {
	largest := float32(0)
	for _, v := range x {
		largest = max(largest, v, -v)
	}
	if largest == 0 || !(largest <= math.MaxFloat32) {
		copy(dst, x)
		return
	}
	scale := largest / 127
	inverse := 127 / largest
	for i, v := range x {
		code := math.RoundToEven(float64(float32(v * inverse)))
		dst[i] = float32(float32(code) * scale)
	}
}
