package reference

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/kernels/act"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/layouts"
)

// MaxGroup is the largest number of columns of a group: the sum over a group of a byte times the
// difference of two bytes fits an int32, 128 * 255 * 65536 < 2^31. TorchAO's layout with zero
// points multiplies two differences; above 33,000 columns its sums might exceed int32, and then
// wrap, here and in all kernels.
const MaxGroup = 1 << 16

// Operator is an immutable matrix of packed weights. Many goroutines may use an Operator at once.
type Operator struct {
	h       packing.Header
	packer  packing.Packer
	data    []byte
	product product

	rows, cols int
	// codes of a quantized row of activations: cols rounded up to 32
	stride int
	group  int // columns of a group; the last group may be short
	groups int
}

// New prepares products with a payload: its packed header and the data behind the header. The
// Operator retains data. New fails as layouts.New does, for a layout without a product, for groups
// above MaxGroup and for data of the wrong size.
func New(h packing.Header, data []byte) (*Operator, error) {
	packer, err := layouts.New(h)
	if err != nil {
		return nil, err
	}
	o := &Operator{
		h: h, packer: packer, data: data, product: products[h.Layout],
		rows: int(h.Rows), cols: int(h.Cols), stride: (int(h.Cols) + 31) / 32 * 32, group: int(h.Cols), groups: packer.Groups(),
	}
	if o.groups > 1 {
		o.group = int(h.Group)
	}
	prefix := packer.Prefix()
	switch size := len(prefix) + packer.Panels()*packer.PanelBytes(); {
	case o.product == nil:
		return nil, fmt.Errorf("layout %s has no product", h.Layout)
	case o.group > MaxGroup:
		return nil, fmt.Errorf("groups of %d columns, want at most %d", o.group, MaxGroup)
	case len(data) != size:
		return nil, fmt.Errorf("%d bytes of data, the header needs %d", len(data), size)
	case !bytes.HasPrefix(data, prefix):
		return nil, fmt.Errorf("data of layout %s does not begin with the header of these weights", h.Layout)
	}
	return o, nil
}

func (o *Operator) Rows() int { return o.rows }

func (o *Operator) Cols() int { return o.cols }

// Multiply computes m rows of outputs, dst [m][Rows()], from m rows of activations, x [m][Cols()].
func (o *Operator) Multiply(dst, x []float32, m int) {
	o.MultiplyQuantized(dst, o.Quantize(x, m), m)
}

func (o *Operator) MultiplyQuantized(dst []float32, a *Activations, m int) {
	if len(dst) != m*o.rows {
		panic(fmt.Sprintf("reference: %d outputs for %d x %d", len(dst), m, o.rows))
	}
	a.check(o, m)
	panel, w := o.packer.NewPanel(), &weights{}
	for p := range o.packer.Panels() {
		size := o.packer.PanelBytes()
		src := o.data[len(o.packer.Prefix())+p*size:][:size]
		o.packer.UnpackPanel(panel, src)
		for r := range o.packer.PanelRows(p) {
			row := p*int(o.h.Tile.NR) + r
			o.read(w, panel, src, row, r)
			for i := range m {
				out := floats.NaN
				if a.Bad == nil || !a.Bad[i] {
					out = o.product(o, w, a, i)
				}
				if out != out {
					out = floats.NaN
				}
				dst[i*o.rows+row] = out
			}
		}
	}
}

// Clamp limits outputs to low .. high as KleidiAI does: the maximum with low, then the minimum with
// high, where -0 is below +0. low and high are not NaN. NaN in dst stays: Go's max and min do the
// same, but may change the bits of a NaN.
func Clamp(dst []float32, low, high float32) {
	for i, v := range dst {
		if v == v {
			dst[i] = min(max(v, low), high)
		}
	}
}

// Activations are m quantized rows of K columns; K32 is K rounded up to 32. The layout of the
// weights decides which fields besides Q are used; the others may be nil.
type Activations struct {
	Q []int8 // [m][K32], 0 past the last column
	// Zero and Rec are each row's zero point and scale, but for qsi4c32p-f16 and qai4c32p.
	Zero []int32
	Rec  []float32
	// BlockScale is the scale of each block of columns, [m][blocks], for qsi4c32p-f16 and qai4c32p.
	// Blocks are the groups of the weights. BlockSum is the sum of a block's codes times its scale,
	// for qai4c32p.
	BlockScale, BlockSum []float32
	// Bad[i] reports whether the outputs of row i are NaN; nil if there are none.
	Bad []bool
}

// Quantize quantizes m rows of activations as the layout defines.
func (o *Operator) Quantize(x []float32, m int) *Activations {
	if len(x) != m*o.cols {
		panic(fmt.Sprintf("reference: %d activations for %d x %d", len(x), m, o.cols))
	}
	a := &Activations{Q: make([]int8, m*o.stride), Bad: make([]bool, m)}
	switch o.h.Layout {
	case packing.LayoutQSI4C32PF16:
		a.BlockScale = make([]float32, m*o.groups)
	case packing.LayoutQAI4C32P:
		a.BlockScale, a.BlockSum = make([]float32, m*o.groups), make([]float32, m*o.groups)
	default:
		a.Zero, a.Rec = make([]int32, m), make([]float32, m)
	}
	for i := range m {
		row, q, ok := x[i*o.cols:][:o.cols], a.Q[i*o.stride:][:o.stride], false
		switch from, to := i*o.groups, (i+1)*o.groups; o.h.Layout {
		case packing.LayoutQSI4C32PF16:
			ok = act.BlocksF16(q, a.BlockScale[from:to], row, o.group)
		case packing.LayoutQAI4C32P:
			ok = act.BlocksF32(q, a.BlockScale[from:to], a.BlockSum[from:to], row, o.group)
		default:
			a.Zero[i], a.Rec[i], ok = act.Asymmetric(q, row)
		}
		a.Bad[i] = !ok
	}
	return a
}

func (a *Activations) check(o *Operator, m int) {
	zeros, scales, sums := m, 0, 0
	switch o.h.Layout {
	case packing.LayoutQSI4C32PF16:
		zeros, scales = 0, m*o.groups
	case packing.LayoutQAI4C32P:
		zeros, scales, sums = 0, m*o.groups, m*o.groups
	}
	if len(a.Q) != m*o.stride || len(a.Zero) < zeros || len(a.Rec) < zeros || len(a.BlockScale) < scales || len(a.BlockSum) < sums || a.Bad != nil && len(a.Bad) < m {
		panic(fmt.Sprintf("reference: %d rows of %s activations with %d codes, %d zero points, %d scales, %d scales and %d sums of blocks; want %d, %d, %d, %d and %d",
			m, o.h.Layout, len(a.Q), len(a.Zero), len(a.Rec), len(a.BlockScale), len(a.BlockSum), m*o.stride, zeros, zeros, scales, sums))
	}
}

// weights is a row of weights: codes and the numbers stored with the codes, nil or 0 if absent.
type weights struct {
	codes     []int8    // of all columns
	scales    []float32 // per group; qsi4cxp and qai4c32p store 1/16 of the scale
	zeros     []int8    // integer zero points per group
	zeroTerms []float32 // qai4c32p's zero points per group
	sum       float32   // of the row's weights: lowbit
	sumCodes  int32     // sum of the row's codes, times 16 in qsi4cxp
	bias      float32
}

// read sets w to row r of a panel, row row of the matrix. src holds the panel's bytes.
func (o *Operator) read(w *weights, panel *packing.Panel, src []byte, row, r int) {
	codes, nr := o.packer.PackedCols(), int(o.h.Tile.NR)
	*w = weights{codes: panel.Codes[r*codes:][:o.cols], scales: panel.Scales[r*o.groups:][:o.groups], zeroTerms: w.zeroTerms[:0]}
	if panel.Zeros != nil {
		w.zeros = panel.Zeros[r*o.groups:][:o.groups]
	}
	switch o.h.Layout {
	case packing.LayoutQSI4CXP, packing.LayoutQSI8CXP, packing.LayoutQSU2CXP:
		// The panel ends with nr sums, nr scales and nr biases.
		tail := src[len(src)-3*4*nr:]
		w.sumCodes = int32(binary.LittleEndian.Uint32(tail[4*r:]))
		w.scales[0] = float32At(tail, nr+r)
		w.bias = float32At(tail, 2*nr+r)
	case packing.LayoutQAI4C32P:
		// Each group is nr rows of codes, nr zero terms, nr scales; nr biases follow.
		group := nr*o.group/2 + 2*4*nr
		for g := range o.groups {
			record := src[g*group+nr*o.group/2:]
			w.zeroTerms = append(w.zeroTerms, float32At(record, r))
			w.scales[g] = float32At(record, nr+r)
		}
		w.bias = float32At(src[o.groups*group:], r)
	default:
		w.bias = o.packer.Bias(o.data, row)
	}
	if l, ok := o.packer.(interface {
		Sum(data []byte, row int) float32
	}); ok {
		w.sum = l.Sum(o.data, row)
	}
}

func float32At(b []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

// product computes an output: row w of the weights times row i of the activations.
type product func(o *Operator, w *weights, a *Activations, i int) float32

var products = map[packing.Layout]product{
	packing.LayoutLowbit:          lowbit,
	packing.LayoutTorchAOKleidiAI: lowbit,
	packing.LayoutQSI4CXP:         perRow,
	packing.LayoutQSI8CXP:         perRow,
	packing.LayoutQSU2CXP:         perRow,
	packing.LayoutQSI4C32PF16:     blocksF16,
	packing.LayoutQAI4C32P:        blocksF32,
	packing.LayoutTorchAOLinear:   torchAO,
}

func (o *Operator) eachGroup(w *weights, a *Activations, i int, f func(g int, q, codes []int8)) {
	q := a.Q[i*o.stride:][:o.cols]
	for g := range o.groups {
		from, to := g*o.group, min((g+1)*o.group, o.cols)
		f(g, q[from:to], w.codes[from:to])
	}
}

func dot(q, codes []int8) (sum int32) {
	codes = codes[:len(q)]
	for k, v := range q {
		sum += int32(v) * int32(codes[k])
	}
	return sum
}

func sumOf(q []int8) (sum int32) {
	for _, v := range q {
		sum += int32(v)
	}
	return sum
}

// lowbit is the product of gq's own layout, and of KleidiAI's qai8dxp x qsi4c32p, where the two are
// the same: f accumulates the groups without the activations' zero point, then adds the zero point
// times the sum of the row's weights.
func lowbit(o *Operator, w *weights, a *Activations, i int) float32 {
	f := float32(0)
	o.eachGroup(w, a, i, func(g int, q, codes []int8) {
		t := dot(q, codes)
		switch {
		case o.h.Grid == packing.GridHalfStep: // z is -1/2; half of an int32 is exact
			f = floats.FMA32(float32(float32(2*t+sumOf(q))*0.5), w.scales[g], f)
		case o.h.ZeroKind == packing.ZeroFraction: // a power of 2 times an int32
			t = t<<o.h.ZeroShift() - int32(w.zeros[g])*sumOf(q)
			f = floats.FMA32(float32(float32(t)*o.h.ZeroUnit()), w.scales[g], f)
		case w.zeros != nil:
			f = floats.FMA32(float32(t-int32(w.zeros[g])*sumOf(q)), w.scales[g], f)
		default:
			f = floats.FMA32(float32(t), w.scales[g], f)
		}
	})
	f = floats.FMA32(w.sum, float32(-a.Zero[i]), f)
	return float32(f*a.Rec[i]) + w.bias
}

// perRow is KleidiAI's qai8dxp x qsi4cxp, qsi8cxp and qsu2cxp: a sum in int32, times the product of
// the weights' and the activations' scales. For qsi4cxp, codes count times 16, as in KleidiAI's
// kernels; its scales are stored divided by 16.
//
// KleidiAI's qsu2cxp kernel for many rows multiplies by the two scales in turn, with other bits
// than its kernel for a single row. This function uses the order of the kernel for a single row.
func perRow(o *Operator, w *weights, a *Activations, i int) float32 {
	times := int32(1)
	if o.h.Layout == packing.LayoutQSI4CXP {
		times = 16
	}
	t := times*dot(a.Q[i*o.stride:][:o.cols], w.codes) - w.sumCodes*a.Zero[i]
	return float32(float32(t)*float32(w.scales[0]*a.Rec[i])) + w.bias
}

// blocksF16 is KleidiAI's qsi8d32p x qsi4c32p. Its weights have no bias.
func blocksF16(o *Operator, w *weights, a *Activations, i int) float32 {
	f := float32(0)
	o.eachGroup(w, a, i, func(g int, q, codes []int8) {
		f = floats.FMA32(float32(dot(q, codes)), float32(a.BlockScale[i*o.groups+g]*w.scales[g]), f)
	})
	return f
}

// blocksF32 is KleidiAI's qsi8d32p x qai4c32p. A weight is q*scale + zero term, so each block adds
// the zero term times the sum of the block's activations. Codes count times 16, because scales are
// stored divided by 16.
func blocksF32(o *Operator, w *weights, a *Activations, i int) float32 {
	f := float32(0)
	o.eachGroup(w, a, i, func(g int, q, codes []int8) {
		b := i*o.groups + g
		f = floats.FMA32(w.zeroTerms[g], a.BlockSum[b], f)
		f = floats.FMA32(float32(16*dot(q, codes)), float32(w.scales[g]*a.BlockScale[b]), f)
	})
	return f + w.bias
}

// torchAO is TorchAO's own kernel: the sum over a group of (activation code - zero point) * (weight
// code - zero point), times the product of the two scales. This product is rounded, then added.
func torchAO(o *Operator, w *weights, a *Activations, i int) float32 {
	f := float32(0)
	o.eachGroup(w, a, i, func(g int, q, codes []int8) {
		zero, t := int32(0), int32(0)
		if w.zeros != nil {
			zero = int32(w.zeros[g])
		}
		for k, v := range q {
			t += (int32(v) - a.Zero[i]) * (int32(codes[k]) - zero)
		}
		f += float32(float32(w.scales[g]*a.Rec[i]) * float32(t))
	})
	if o.h.Flags&packing.FlagBias == 0 {
		return f
	}
	return f + w.bias
}
