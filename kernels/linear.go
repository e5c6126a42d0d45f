package kernels

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/kernels/tile"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// Operator is y = x W^T + b for the weights W and the bias b of a payload.
type Operator interface {
	// Rows is the number of outputs, Cols the number of inputs.
	Rows() int
	Cols() int
	// Forward computes m rows: dst is [m][Rows()], x is [m][Cols()], both row-major. Forward fails
	// only if dst or x has another length. Many goroutines may call Forward at once, each with its own
	// Workspace.
	Forward(w *Workspace, dst, x []float32, m int) error
	// ForwardClamped is Forward with every output limited to lo .. hi; NaN stays. As in KleidiAI's
	// kernels, the output is the maximum with lo, then the minimum with hi, and -0 is below +0. A NaN
	// in lo or hi is an error.
	ForwardClamped(w *Workspace, dst, x []float32, m int, lo, hi float32) error
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
	maxRows  int     // rows of a pass
	header   packing.Header
	data     []byte
	packer   packing.Packer // reads rows
	log      func(Choice)
}

// NewLinear makes the operator of a payload. data follows the packed header and must not change
// while the operator is used. Only Forward reads data: if data is a mapped file that may become
// shorter, call Forward within mmap.Guard or gqf.File.Guard.
//
// A payload that no kernel reads is an *UnsupportedError: LayoutPlain (see NewFloat), embeddings,
// and groups of more than 65,536 columns.
func NewLinear(h packing.Header, data []byte, o Options) (*Linear, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	if _, ok := supported[h.Layout]; ok {
		// Check the size first: newPanelLayout allocates for each group that a header may claim.
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

// passBytes bounds a Workspace's quantized activations. More rows take several passes.
const passBytes = 8 << 20

func (l *Linear) Rows() int { return l.rows }

func (l *Linear) Cols() int { return l.cols }

func (l *Linear) Header() packing.Header { return l.header }

func (l *Linear) Kernel(m int) string { return l.choose(m).name }

func (l *Linear) ReadRow(dst []float32, row int) { l.packer.DequantizeRow(dst, l.data, row) }
