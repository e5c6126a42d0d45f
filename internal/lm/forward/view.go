package forward

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// viewed opens the matrix of header h in a payload that lies in a file of another program. first is
// the matrix's first row in the payload. open makes the operator of rows without gaps.
func (s *gqfSource) viewed(p gqf.Payload, h packing.Header, first int, open func(h packing.Header, data []byte) (kernels.Operator, error)) (kernels.Operator, error) {
	v := s.file.View(p)
	op := &reordered{rows: int(h.Rows), cols: int(h.Cols), columns: v.Columns}
	for _, run := range v.Rows(p.Header, first, op.rows) {
		h.Rows = uint64(len(run)) / uint64(v.RowBytes(p.Header))
		part, err := open(h, run)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", s.file.Tensor(p.Tensor).Name, err)
		}
		op.parts = append(op.parts, part)
	}
	if v.Order == nil && v.Columns == nil && len(op.parts) == 1 {
		return op.parts[0], nil
	}
	op.order = make([]int32, op.rows)
	for i := range op.order {
		op.order[i] = int32(i)
		if v.Order != nil {
			op.order[i] = v.Order[first+i] - int32(first)
		}
	}
	return op, nil
}

// reordered multiplies with a matrix in several parts, or with rows or columns in another order.
// llama.cpp stores the heads of queries and keys so, and the halves of fused experts.
type reordered struct {
	parts      []kernels.Operator
	order      []int32 // the place of each row in parts
	columns    []int32 // the place of each column of parts; nil: its number
	rows, cols int
	buffers    sync.Pool // *[]float32: outputs of a part, or of a row, and reordered activations
}

func (r *reordered) Rows() int { return r.rows }

func (r *reordered) Cols() int { return r.cols }

func (r *reordered) Kernel(m int) string { return r.parts[0].Kernel(m) }

// Activations is kernels.Linear.Activations, or "" for unquantized weights.
func (r *reordered) Activations() string { return quantizedAs(r.parts[0]) }

func (r *reordered) Forward(w *kernels.Workspace, dst, x []float32, m int) error {
	return r.each(w, dst, x, m, func(op kernels.Operator, out, x []float32) error { return op.Forward(w, out, x, m) })
}

func (r *reordered) ForwardClamped(w *kernels.Workspace, dst, x []float32, m int, lo, hi float32) error {
	return r.each(w, dst, x, m, func(op kernels.Operator, out, x []float32) error { return op.ForwardClamped(w, out, x, m, lo, hi) })
}

func (r *reordered) each(w *kernels.Workspace, dst, x []float32, m int, forward func(op kernels.Operator, out, x []float32) error) error {
	if len(dst) != m*r.rows {
		return fmt.Errorf("model: %d outputs for %d rows of %d", len(dst), m, r.rows)
	}
	if r.columns != nil {
		held := r.take()
		defer r.buffers.Put(held)
		moved := buffer.Grow(held, m*r.cols)
		for i := range moved {
			moved[i] = x[i-i%r.cols+int(r.columns[i%r.cols])]
		}
		x = moved
	}
	held := r.take()
	defer r.buffers.Put(held)
	if len(r.parts) == 1 {
		if err := forward(r.parts[0], dst, x); err != nil {
			return err
		}
	} else {
		at := 0
		for _, part := range r.parts {
			n := part.Rows()
			out := buffer.Grow(held, m*n)
			if err := forward(part, out, x); err != nil {
				return err
			}
			for i := range m {
				copy(dst[i*r.rows+at:], out[i*n:][:n])
			}
			at += n
		}
	}
	const least = 16 // rows of activations that are worth waking a thread
	pool, parts := w.Pool(), 1
	if pool != nil {
		parts = max(1, min(2*pool.Threads(), m/least))
	}
	arrange := func(_, part int) { r.arrange(dst[m*part/parts*r.rows : m*(part+1)/parts*r.rows]) }
	if parts == 1 {
		arrange(0, 0)
	} else {
		pool.Run(parts, arrange)
	}
	return nil
}

// arrange puts the outputs of parts, of some rows of activations, into the order of r.
func (r *reordered) arrange(dst []float32) {
	held := r.take()
	defer r.buffers.Put(held)
	row := buffer.Grow(held, r.rows)
	for ; len(dst) > 0; dst = dst[r.rows:] {
		copy(row, dst)
		for k, from := range r.order {
			dst[k] = row[from]
		}
	}
}

func (r *reordered) take() *[]float32 {
	if held, ok := r.buffers.Get().(*[]float32); ok {
		return held
	}
	return new([]float32)
}

// ReadRow implements kernels.RowReader.
func (r *reordered) ReadRow(dst []float32, row int) {
	at := int(r.order[row])
	for _, part := range r.parts {
		if n := part.Rows(); at >= n {
			at -= n
			continue
		}
		part.(kernels.RowReader).ReadRow(dst, at)
		if r.columns != nil {
			for i, v := range slices.Clone(dst) {
				dst[r.columns[i]] = v
			}
		}
		return
	}
}
