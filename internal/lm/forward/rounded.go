package forward

import (
	"math"

	"github.com/lowbit-go/gq/kernels"
)

// roundedInputs rounds the inputs of an operator to int8, with a scale for each block of a row.
//
// Source: QuantizeARow_CompInt8_avx512 in onnxruntime/core/mlas/lib/sqnbitgemm_kernel_avx512.cpp.
type roundedInputs struct {
	kernels.Operator
	block int
}

func (r *roundedInputs) Activations() string { return ONNX.String() }

func (r *roundedInputs) Forward(w *kernels.Workspace, dst, x []float32, m int) error {
	return r.Operator.Forward(w, dst, r.round(x), m)
}

func (r *roundedInputs) ForwardClamped(w *kernels.Workspace, dst, x []float32, m int, lo, hi float32) error {
	return r.Operator.ForwardClamped(w, dst, r.round(x), m, lo, hi)
}

// round returns rounded rows. A block with NaN or Inf is not rounded.
func (r *roundedInputs) round(x []float32) []float32 {
	out := make([]float32, len(x))
	for row := 0; row < len(x); row += r.Cols() {
		end := min(row+r.Cols(), len(x))
		for from := row; from < end; from += r.block {
			to := min(from+r.block, end)
			roundBlock(out[from:to], x[from:to])
		}
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
