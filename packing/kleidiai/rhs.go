package kleidiai

import (
	"fmt"

	"github.com/lowbit-go/gq/packing"
)

// RHS packs and unpacks matrices of weights of one configuration. It does not
// change and may be used by many goroutines at once.
type RHS struct {
	c     RHSConfig
	f     *frame
	low   *packing.Lowbit // packs QSI4C32P, nil for the others
	panel int             // bytes of a panel
}

// Weights is a quantized matrix of N x K, G = K / BL groups a row.
type Weights struct {
	// Codes is N x K, row-major: -8..7, -128..127 for QSI8CXP, -2..1 for the
	// QSU2CXP kinds. With RowPairs there is one more row when N is odd.
	Codes []int8
	// Scales is N x G, BF16 and F16 ones as float32.
	Scales []float32
	// Zeros is N x G float32 zero points of the QAI4C32P kinds: the weight is
	// scale * q + zero. Nil for the others.
	Zeros []float32
	// Bias is N, or nil for zeros. The ScaleF16 kinds do not store it.
	Bias []float32
	// RowPairs says that the codes are from a K x N source with two rows in a
	// byte, see NibblesKxN. KleidiAI's packers of such sources fill a panel's
	// padding with the byte of the last row, but with the half that belongs to
	// the padding row's own number, instead of with the last row. Default
	// false.
	RowPairs bool
}

// NewRHS prepares packing and unpacking. It fails when c has a field that
// KleidiAI's packer would not take.
func NewRHS(c RHSConfig) (*RHS, error) {
	if c.BL == 0 {
		c.BL = c.K
	}
	if c.LHSZeroPoint == 0 {
		c.LHSZeroPoint = 1
	}
	f, err := newFrame(c)
	if err != nil {
		return nil, err
	}
	r := &RHS{c: c, f: f, panel: f.panelBytes}
	if c.Kind == QSI4C32P {
		h := packing.Header{
			Layout: packing.LayoutLowbit, Flags: packing.FlagBias, Bits: 4, ScaleDtype: packing.ScaleBF16,
			Tile: packing.Tile{NR: uint8(min(c.NR, 255)), KR: uint8(min(c.KR, 255)), SR: uint8(min(c.SR, 255))},
			Rows: uint64(c.N), Cols: uint64(c.K), Group: uint64(c.BL),
		}
		if r.low, err = packing.NewLowbit(h.Canonical()); err != nil {
			return nil, fmt.Errorf("kleidiai: %s: %w", c.Kind, err)
		}
	}
	return r, nil
}

// PackedSize is the number of bytes of the packed matrix.
func (r *RHS) PackedSize() int { return r.f.panels() * r.panel }

// PanelBytes is KleidiAI's rhs_packed_stride, the bytes of NR rows.
func (r *RHS) PanelBytes() int { return r.panel }

// check panics unless the lengths are those that Weights documents.
func (r *RHS) check(packed []byte, w *Weights) {
	n, g := r.c.N, r.c.N*r.f.groups
	codes, zeros := n, 0
	if w.RowPairs {
		codes += n % 2
	}
	if r.f.zero0 >= 0 {
		zeros = g
	}
	switch {
	case len(packed) != r.PackedSize():
		panic(fmt.Sprintf("kleidiai: %d bytes for a packed matrix of %d", len(packed), r.PackedSize()))
	case len(w.Codes) != codes*r.c.K, len(w.Scales) != g, len(w.Zeros) != zeros, w.Bias != nil && len(w.Bias) != n:
		panic(fmt.Sprintf("kleidiai: %d codes, %d scales, %d zero points and %d biases; want %d, %d, %d and %d or none",
			len(w.Codes), len(w.Scales), len(w.Zeros), len(w.Bias), codes*r.c.K, g, zeros, n))
	}
}

// Pack packs w into dst, PackedSize() bytes. Some SME kinds do not write the
// bytes of rows past the last one; dst keeps what it had there. It panics when
// a slice of w has the wrong length.
func (r *RHS) Pack(dst []byte, w *Weights) {
	r.check(dst, w)
	f := r.f
	nr, k, groups := f.nr, f.k, f.groups
	codes := make([]int8, nr*f.cols)
	for i := range f.panels() {
		rows := f.panelRows(i)
		n0, codeRows := i*nr, rows
		if w.RowPairs {
			codeRows = nr
		}
		for row := range codeRows {
			source := n0 + row
			if source >= f.n { // see Weights.RowPairs
				source = (f.n-1)/2*2 + source%2
			}
			copy(codes[row*f.cols:][:k], w.Codes[source*k:][:k])
		}
		var bias []float32
		if w.Bias != nil {
			bias = w.Bias[n0:][:rows]
		}
		scales := w.Scales[n0*groups:][:rows*groups]
		out := dst[i*r.panel:][:r.panel]
		if r.low != nil {
			r.packLow(out, codes, scales, bias, rows, codeRows)
			continue
		}
		p := panel{rows: rows, codeRows: codeRows, codes: codeBytes(codes), scales: scales, bias: bias}
		if f.zero0 >= 0 {
			p.zeros = w.Zeros[n0*groups:][:rows*groups]
		}
		f.pack(out, &p)
	}
}

// packLow packs a panel of QSI4C32P, whose bytes are the lowbit layout's.
func (r *RHS) packLow(dst []byte, codes []int8, scales, bias []float32, rows, codeRows int) {
	f := r.f
	p := packing.Panel{Rows: codeRows, Codes: codes, Scales: make([]float32, f.nr*f.groups), Bias: make([]float32, f.nr)}
	for i := range f.nr {
		last := min(i, rows-1)
		copy(p.Scales[i*f.groups:], scales[last*f.groups:][:f.groups])
		if bias != nil {
			p.Bias[i] = bias[last]
		}
	}
	r.low.PackPanel(dst, &p)
	if r.c.Sums == SumBlocks {
		f.putSums(dst[f.sum0:], &panel{rows: rows, codeRows: codeRows, codes: codeBytes(codes), scales: scales})
	}
}

// Unpack reads a packed matrix, PackedSize() bytes. Scales that were stored
// divided by 16 come back multiplied by 16, which is exact but for F16 scales
// that became subnormal. Bias is nil for the kinds that hold none.
func (r *RHS) Unpack(src []byte) *Weights {
	f := r.f
	w := &Weights{Codes: make([]int8, f.n*f.k), Scales: make([]float32, f.n*f.groups)}
	if f.zero0 >= 0 {
		w.Zeros = make([]float32, f.n*f.groups)
	}
	if f.bias0 >= 0 {
		w.Bias = make([]float32, f.n)
	}
	r.check(src, w)
	for row := range f.n {
		codes := w.Codes[row*f.k:][:f.k]
		if r.low != nil {
			r.low.Row(codes, w.Scales[row*f.groups:], nil, src, row)
			w.Bias[row] = r.low.Bias(src, row)
			continue
		}
		panel, i := src[row/f.nr*r.panel:][:r.panel], row%f.nr
		f.codes(codeBytes(codes), panel, i)
		for g := range f.groups {
			w.Scales[row*f.groups+g] = f.scale(panel, i, g)
			if w.Zeros != nil {
				w.Zeros[row*f.groups+g] = f.zero(panel, i, g)
			}
		}
		if w.Bias != nil {
			w.Bias[row] = f.bias(panel, i)
		}
	}
	return w
}
