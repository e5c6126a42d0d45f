package kernels

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/kernels/internal/tile"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// Operator is y = x W^T + b, with the weights W and the bias b of one payload.
type Operator interface {
	// Rows is the number of outputs, Cols the number of inputs.
	Rows() int
	Cols() int
	// Forward computes m rows: dst is [m][Rows()], x is [m][Cols()], both row-major. It fails only
	// if dst or x has another length. Many goroutines may call it at once, each with its own
	// Workspace.
	Forward(w *Workspace, dst, x []float32, m int) error
	// ForwardClamped is Forward with every output limited to lo .. hi; NaN stays. Like KleidiAI's
	// kernels, it takes the maximum with lo, then the minimum with hi, and -0 is below +0. It fails
	// if lo or hi is NaN.
	ForwardClamped(w *Workspace, dst, x []float32, m int, lo, hi float32) error
	// Kernel is the name, as in Table, of the kernel that Forward runs for m rows.
	Kernel(m int) string
}

// Linear is the Operator of quantized weights. Its kernels read the packed bytes and quantize
// activations row by row, as the layout defines.
type Linear struct {
	*panelLayout
	selection
	reader   reader
	steps    []int32
	products []func(*tile.Args) // of each step
	zeroStep bool               // each group has its own zero points
	sumsUsed bool               // products need the sums of activations
	shift8   [8]uint32
	noZeros  []int32 // [NR] of 0
	maxRows  int     // rows of one pass
	header   packing.Header
	data     []byte
	packer   packing.Packer // reads rows
	log      func(Choice)
}

// NewLinear makes the operator of a payload. data follows the packed header; it may be mapped, and
// must not change while the operator is used. Only Forward reads it: if data is a mapped file that
// may become shorter, call Forward within mmap.Guard or gqf.File.Guard.
//
// It fails with *UnsupportedError for payloads that no kernel reads: LayoutPlain (see NewFloat),
// embeddings, which are no linear layers, and groups of more than 65,536 columns.
func NewLinear(h packing.Header, data []byte, o Options) (*Linear, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	if _, ok := supported[h.Layout]; ok {
		// Checked before newPanelLayout, which allocates for each group: a damaged header may claim
		// any number.
		if size, err := h.DataSize(); err != nil {
			return nil, err
		} else if int64(len(data)) != size {
			return nil, fmt.Errorf("kernels: %d bytes of data, the packed header needs %d", len(data), size)
		}
	}
	f, err := newPanelLayout(h)
	if err != nil {
		return nil, err
	}
	features, err := o.features()
	if err != nil {
		return nil, err
	}
	packer, err := layouts.New(h)
	if err != nil {
		return nil, err
	}
	l := &Linear{panelLayout: f, selection: newSelection(f, features), header: h, data: data, packer: packer, log: o.log()}
	l.use()
	return l, nil
}

// use sets the fields that follow from the selection.
func (l *Linear) use() {
	l.reader = newReader(l.panelLayout, l.set)
	l.steps = l.panelLayout.steps()
	l.zeroStep = l.panelLayout.header.ZeroKind.IsInt8()
	l.sumsUsed = l.zeroStep || l.reader.zero != 0
	l.products = nil
	for i := range l.set.Steps {
		l.products = append(l.products, l.product(&l.set.Steps[i]))
	}
	for i := range l.shift8 {
		l.shift8[i] = uint32(l.panelLayout.shift)
	}
	l.noZeros = make([]int32, l.set.NR)
	most := l.set.Steps[0].MR
	l.maxRows = max(passBytes/l.stored/most*most, most)
}

// passBytes bounds the quantized activations that a Workspace holds. More rows take several passes
// over the weights.
const passBytes = 8 << 20

// Rows is the number of outputs.
func (l *Linear) Rows() int { return l.rows }

// Cols is the number of inputs.
func (l *Linear) Cols() int { return l.cols }

// Header describes the payload.
func (l *Linear) Header() packing.Header { return l.header }

// Kernel is the name, as in Table, of the kernel that Forward runs for m rows.
func (l *Linear) Kernel(m int) string { return l.choose(m).name }

// ReadRow implements RowReader: the row of the dequantized matrix.
func (l *Linear) ReadRow(dst []float32, row int) { l.packer.DequantizeRow(dst, l.data, row) }

// Forward implements Operator.
func (l *Linear) Forward(w *Workspace, dst, x []float32, m int) error {
	return l.forward(w, dst, x, m, float32(math.Inf(-1)), float32(math.Inf(1)))
}

// ForwardClamped implements Operator.
func (l *Linear) ForwardClamped(w *Workspace, dst, x []float32, m int, lo, hi float32) error {
	return l.forward(w, dst, x, m, lo, hi)
}

func (l *Linear) forward(w *Workspace, dst, x []float32, m int, lo, hi float32) error {
	if err := checkForward(l.rows, l.cols, dst, x, m, lo, hi); err != nil || m == 0 {
		return err
	}
	c := l.choose(m)
	if l.log != nil && c.logged.CompareAndSwap(false, true) {
		l.log(Choice{c.name, l.header, m})
	}
	w.job.limit(lo, hi)
	for m > 0 {
		n := min(m, l.maxRows)
		w.multiply(l, c, dst[:n*l.rows], x[:n*l.cols], n)
		dst, x, m = dst[n*l.rows:], x[n*l.cols:], m-n
	}
	w.job.l, w.job.dst, w.job.x = nil, nil, nil
	return nil
}

// checkForward checks Forward's arguments.
func checkForward(rows, cols int, dst, x []float32, m int, lo, hi float32) error {
	switch {
	case m < 0 || m > math.MaxInt/max(rows, cols) || len(dst) != m*rows || len(x) != m*cols:
		return fmt.Errorf("kernels: %d outputs and %d inputs, want %d rows of %d and %d", len(dst), len(x), m, rows, cols)
	case lo != lo || hi != hi:
		return fmt.Errorf("kernels: clamping to %v .. %v, want two numbers", lo, hi)
	}
	return nil
}
