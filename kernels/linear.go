package kernels

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/kernels/reference"
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
	zeroStep bool // each group has its own zero points
	sumsUsed bool // products need the sums of activations
	shift8   [8]uint32
	noZeros  []int32 // [NR] of 0
	maxRows  int     // rows of a pass
	header   packing.Header
	data     []byte
	readRow  func(dst []float32, row int)
	log      func(Choice)
}

// NewLinear makes the operator of a payload. data follows the packed header and must not change
// while the operator is used. Only Forward reads data: if data is a mapped file that may become
// shorter, call Forward within mmap.Guard or gqf.File.Guard. Of packing.LayoutBlocks, data are rows
// of ggml's blocks, and activations are quantized as llama.cpp does for the type.
//
// A payload that no kernel reads is an *UnsupportedError: LayoutPlain (see NewFloat), embeddings,
// and groups of more than 65,536 columns.
func NewLinear(h packing.Header, data []byte, o Options) (*Linear, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	if h.Layout == packing.LayoutBlocks {
		return newBlocks(h, data, o)
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
	l := &Linear{panelLayout: f, selection: newSelection(f, features), header: h, data: data, log: o.log()}
	l.readRow = func(dst []float32, row int) { packer.DequantizeRow(dst, data, row) }
	l.use()
	return l, nil
}

func (l *Linear) use() {
	l.reader = newReader(l.panelLayout, l.set)
	if l.set.Steps[0].Words {
		l.reader.widen = l.set.Widen
	}
	l.steps = l.panelLayout.steps()
	l.zeroStep = l.panelLayout.header.ZeroKind.IsInt8()
	l.sumsUsed = l.zeroStep || l.reader.zero != 0 || l.ggml != nil && l.ggml.Subs && l.ggml.Minima
	for i := range l.shift8 {
		l.shift8[i] = uint32(l.panelLayout.shift)
	}
	switch unit := l.set.Steps[0].Unit; {
	case unit > 0 && l.reader.zero != 0:
		l.words = l.stored / unit
	case unit > 0 && l.ggml.Subs && l.ggml.Minima:
		l.words = l.groups / 2
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

// Activations is the type to which the operator quantizes activations: int8, or a type of ggml,
// such as Q8_K.
func (l *Linear) Activations() string {
	if l.ggml == nil {
		return "int8"
	}
	return l.ggml.Activations.String()
}

func (l *Linear) Kernel(m int) string { return l.choose(m).name }

func (l *Linear) ReadRow(dst []float32, row int) { l.readRow(dst, row) }

// shiftDots turns dot products without zero points, [mr][groups][NR], into tile.Step.Shifted's t.
func (l *Linear) shiftDots(dots, zeros, sums []int32, mr int) {
	n := l.groups * l.set.NR
	for i := range mr {
		row := dots[i*n:][:n]
		for j := range row {
			row[j] = row[j]<<l.shift - zeros[j]*sums[j/l.set.NR*mr+i]
		}
	}
}

// epilogueUnit is the arithmetic of tile.Step.Group for scales that cannot be multiplied by the
// unit of t, a power of 2: the term of a group is fma(float32(t)*unit, scale, f). The first product
// is exact.
func epilogueUnit(out []float32, t []int32, unit float32, scales, rowSums, bias []float32, negZero, rec float32) {
	nr := len(out)
	for r := range out {
		f := float32(0)
		for i := r; i < len(t); i += nr {
			f = floats.FMA32(float32(float32(t[i])*unit), scales[i], f)
		}
		f = floats.FMA32(rowSums[r], negZero, f)
		if out[r] = float32(f*rec) + bias[r]; out[r] != out[r] {
			out[r] = floats.NaN
		}
	}
}

// finishRows clamps columns [from, to) of the outputs of rows [row, row+n), and writes NaN to the
// outputs of rows without codes. at is the index of the first row in w.acts.
func (w *Workspace) finishRows(row, at, n, from, to int) {
	j := &w.job
	for i := range n {
		out := j.dst[(row+i)*j.l.rows:][from:to]
		if w.acts.bad[at+i] {
			for r := range out {
				out[r] = floats.NaN
			}
		} else if j.clamped {
			reference.Clamp(out, j.min, j.max)
		}
	}
}

type Options struct {
	// CPU is the best instruction set that the operator may use: generic, neon, dotprod, i8mm, avx2,
	// avxvnni, avx512vnni. An instruction set that this CPU lacks is an error. Default: the
	// environment variable GQ_CPU, or else the best instruction set of this CPU.
	CPU string
	// Log is called when the operator runs a kernel for the first time, from the goroutine that
	// called Forward. Default: a line to standard error if the environment variable GQ_LOG lists
	// "kernels", else nothing.
	Log func(Choice)
}

// Choice is the kernel that an operator runs for a number of rows.
type Choice struct {
	Kernel string         // its name, as in Table
	Header packing.Header // of the weights
	M      int            // rows of activations
}

func (c Choice) String() string {
	h := c.Header
	if h.Layout == packing.LayoutBlocks {
		return fmt.Sprintf("%s: %s, %d x %d, m %d", c.Kernel, gguf.TensorType(h.Dtype), h.Rows, h.Cols, c.M)
	}
	if h.Layout == packing.LayoutPlain {
		return fmt.Sprintf("%s: %s %s, %d x %d, m %d", c.Kernel, h.Layout, h.Dtype, h.Rows, h.Cols, c.M)
	}
	group := "channel"
	if h.Group != 0 {
		group = fmt.Sprint(h.Group)
	}
	return fmt.Sprintf("%s: %s %s, %d bits, group %s, %d x %d, m %d", c.Kernel, h.Layout, h.Tile, h.Bits, group, h.Rows, h.Cols, c.M)
}

// Features lists the instruction sets that this CPU and build have, from the least to the best.
func Features() []string { return cpu.Supported() }

// features lists the instruction sets that the operator may use, from the least to the best. The
// quantization of activations follows the program's choice instead: every implementation gives the
// same bits.
func (o Options) features() ([]string, error) {
	list, err := cpu.UpTo(o.CPU)
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	return list, nil
}

func (o Options) log() func(Choice) {
	if o.Log == nil && slices.Contains(strings.Split(os.Getenv("GQ_LOG"), ","), "kernels") {
		return func(c Choice) { fmt.Fprintln(os.Stderr, "kernels:", c) }
	}
	return o.Log
}
