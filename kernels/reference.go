package kernels

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/kernels/internal/reference"
	"github.com/lowbit-go/gq/packing"
)

// Reference is the Operator that defines the bits of every kernel, in plain Go: slow and
// single-threaded. It shares only the layout's packer and the quantization of activations with the
// kernels.
type Reference struct{ op *reference.Operator }

// NewReference makes the reference operator of a payload. It fails as NewLinear does, with
// *UnsupportedError for payloads that no kernel reads.
func NewReference(h packing.Header, data []byte) (*Reference, error) {
	if _, err := newPanelLayout(h); err != nil {
		return nil, err
	}
	op, err := reference.New(h, data)
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	return &Reference{op}, nil
}

// Rows is the number of outputs.
func (r *Reference) Rows() int { return r.op.Rows() }

// Cols is the number of inputs.
func (r *Reference) Cols() int { return r.op.Cols() }

// Kernel is "reference".
func (r *Reference) Kernel(int) string { return "reference" }

// Forward implements Operator; it allocates, and does not use the Workspace.
func (r *Reference) Forward(w *Workspace, dst, x []float32, m int) error {
	return r.ForwardClamped(w, dst, x, m, float32(math.Inf(-1)), float32(math.Inf(1)))
}

// ForwardClamped implements Operator, as Forward does.
func (r *Reference) ForwardClamped(_ *Workspace, dst, x []float32, m int, lo, hi float32) error {
	if err := checkForward(r.Rows(), r.Cols(), dst, x, m, lo, hi); err != nil || m == 0 {
		return err
	}
	r.op.Multiply(dst, x, m)
	reference.Clamp(dst, lo, hi)
	return nil
}
