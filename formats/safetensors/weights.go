package safetensors

import (
	"fmt"

	"github.com/lowbit-go/gq/packing"
)

// Weights reads a tensor of any dtype as float32: Slices matrices of Rows outputs x Cols inputs.
// Weights applies FP8 block scales and transposes matrices that the checkpoint stores as inputs x
// outputs. Rows are numbered over all slices: row r of slice s is row s*Rows + r.
//
// Several goroutines may call methods at once. Weights is valid until the checkpoint is closed.
type Weights struct {
	Tensor Tensor
	// Slices is the product of all dimensions but the last two: the experts of a fused tensor.
	Slices int
	// Rows and Cols are the shape of a slice. A tensor of a single dimension is a single row.
	Rows, Cols int
	// Scale holds the block scales of FP8 weights; nil if the checkpoint has none.
	Scale *BlockScale

	ck         *Checkpoint
	view       []byte
	size       int // bytes per element
	transposed bool
}

// WeightsOptions holds facts about a tensor that its header does not state.
type WeightsOptions struct {
	// Block is the size of a block of FP8 weights in rows and columns, config.json's
	// quantization_config.weight_block_size. Default (0): 128.
	Block [2]int
	// Transposed: the checkpoint stores each slice as Cols x Rows. Default: Rows x Cols.
	Transposed bool
}

// Weights prepares the reading of t. A dtype that does not hold weights, block scales of an unknown
// format, and block scales of a transposed tensor are an *UnsupportedError. Block scales that do
// not fit the tensor are a *FormatError.
func (c *Checkpoint) Weights(t Tensor, o WeightsOptions) (*Weights, error) {
	if !t.Dtype.IsFloat() {
		return nil, c.unsupported(t, "dtype "+t.DtypeName+" does not hold floating-point weights")
	}
	view, err := c.Bytes(t)
	if err != nil {
		return nil, err
	}
	all, cols := t.Matrix()
	w := &Weights{Tensor: t, Slices: 1, Rows: int(all), Cols: int(cols), ck: c, view: view, size: t.Dtype.Bits() / 8, transposed: o.Transposed}
	if n := len(t.Shape); n >= 2 {
		w.Rows = int(t.Shape[n-2])
		w.Slices = int(all) / max(w.Rows, 1)
	}
	if isFP8(t.Dtype) {
		if w.Scale, err = c.BlockScales(t.Name, o.Block); err != nil {
			return nil, err
		}
	}
	if o.Transposed {
		if w.Scale != nil {
			return nil, c.unsupported(t, "it has block scales ("+quote(w.Scale.Name)+") and is stored inputs x outputs")
		}
		w.Rows, w.Cols = w.Cols, w.Rows
	}
	return w, nil
}

// Precision is the format of scales that holds the weights of the tensor: BF16, F16 or F32, or
// ScaleNone for other dtypes. FP8 weights with block scales are products that no such format holds.
func (t *Tensor) Precision() packing.ScaleDtype {
	switch t.Dtype {
	case packing.BF16:
		return packing.ScaleBF16
	case packing.F16:
		return packing.ScaleF16
	case packing.F32:
		return packing.ScaleF32
	}
	return packing.ScaleNone
}

// isFP8 reports whether tensors of dtype d may have block scales.
func isFP8(d packing.Dtype) bool { return d == packing.F8E4M3 || d == packing.F8E5M2 }

// Bytes returns the checkpoint's bytes of n rows from first on, without block scales, or nil if the
// checkpoint stores the tensor transposed: rows are not contiguous then.
func (w *Weights) Bytes(first, n int) []byte {
	if w.transposed {
		return nil
	}
	width := w.Cols * w.size
	return w.view[first*width:][:n*width]
}

// Read converts n rows from first on to float32; len(dst) is n * Cols. ReadRows documents the
// conversion of each dtype; an FP8 value with a block scale is float32(value * scale). Rows of a
// transposed tensor must lie in the same slice.
//
// Read needs no Guard: a truncated file is a *FormatError. Rows of a remote file are fetched, in
// the memory of a whole slice if the tensor is transposed.
func (w *Weights) Read(dst []float32, first, n int) error {
	if first < 0 || n < 0 || n > w.Slices*w.Rows-first {
		return fmt.Errorf("safetensors: tensor %s has %d rows, not rows %d to %d", quote(w.Tensor.Name), w.Slices*w.Rows, first, first+n)
	}
	if len(dst) != n*w.Cols {
		return fmt.Errorf("safetensors: tensor %s: %d rows of %d values do not go into %d", quote(w.Tensor.Name), n, w.Cols, len(dst))
	}
	release, err := w.ck.fetch(w.Ranges(nil, first, n))
	if err != nil {
		return err
	}
	defer release()
	return w.ck.Guard(func() error {
		w.Widen(dst, first, n)
		return nil
	})
}

// Ranges appends the ranges of the checkpoint that Widen reads for n rows from first on: for a
// transposed tensor, whole slices.
func (w *Weights) Ranges(list []Range, first, n int) []Range {
	width := int64(w.Cols) * int64(w.size)
	if w.transposed && n > 0 {
		first, n = first/w.Rows*w.Rows, w.Rows
	}
	return append(list, w.Tensor.Range(int64(first)*width, int64(n)*width))
}

// Widen is Read without checks. Call Widen inside Checkpoint.Guard, when Ranges are fetched.
func (w *Weights) Widen(dst []float32, first, n int) {
	if w.transposed {
		w.gather(dst, first, n)
		return
	}
	Widen(dst[:n*w.Cols], w.Bytes(first, n), w.Tensor.Dtype)
	if w.Scale == nil {
		return
	}
	for i := range n {
		w.Scale.apply(dst[i*w.Cols:][:w.Cols], first+i)
	}
}

// gather reads n outputs, from number first on, of slices that are stored as Cols x Rows. Each
// stored row has a value for every output, so memory is read in order.
func (w *Weights) gather(dst []float32, first, n int) {
	slice, row := first/w.Rows, first%w.Rows
	line := make([]float32, n)
	for k := range w.Cols {
		at := ((slice*w.Cols+k)*w.Rows + row) * w.size
		Widen(line, w.view[at:][:n*w.size], w.Tensor.Dtype)
		for i, v := range line {
			dst[i*w.Cols+k] = v
		}
	}
}
