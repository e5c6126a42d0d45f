package kleidiai

import (
	"fmt"
	"math"
	"sync"

	"github.com/lowbit-go/gq/packing"
)

// Packer is the packing.Packer of a payload in one of KleidiAI's layouts.
type Packer struct {
	h       packing.Header
	f       *frame
	scratch *sync.Pool // of *[2]*packedRow
}

var _ packing.Packer = (*Packer)(nil)

// NewPacker prepares packing and reading of a payload with header h. It fails like h.Validate, and
// with *packing.UnsupportedError for a layout that is not KleidiAI's or a payload that this machine
// cannot address.
func NewPacker(h packing.Header) (*Packer, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	const offLayout, offRows = 6, 16 // offsets in the header, see docs/FORMAT.md
	switch h.Layout {
	case packing.LayoutQSI4CXP, packing.LayoutQSI4C32PF16, packing.LayoutQSI8CXP, packing.LayoutQAI4C32P, packing.LayoutQSU2CXP:
	default:
		return nil, &packing.UnsupportedError{Field: "layout", Offset: offLayout, Msg: fmt.Sprintf("layout %s is not one of KleidiAI's", h.Layout)}
	}
	// A panel as int8 codes is at most 4 times as long as its packed bytes.
	if size, err := h.DataSize(); err != nil || size > math.MaxInt/8 || h.Cols > math.MaxInt32/2 {
		return nil, &packing.UnsupportedError{Field: "rows", Offset: offRows, Msg: fmt.Sprintf("%d x %d weights are more than this machine can address", h.Rows, h.Cols)}
	}
	p := &Packer{h: h, f: newFrame(&h)}
	p.scratch = &sync.Pool{New: func() any { return &[2]*packedRow{p.newRow(), p.newRow()} }}
	return p, nil
}

// Header returns the header that NewPacker got.
func (p *Packer) Header() packing.Header { return p.h }

// Prefix returns nil: KleidiAI's layouts have no header of their own.
func (p *Packer) Prefix() []byte { return nil }

// Panels is the number of panels: rows / nr, rounded up.
func (p *Packer) Panels() int { return p.f.panels() }

// PanelBytes is the size of a panel.
func (p *Packer) PanelBytes() int { return p.f.panelBytes }

// PanelRows is the number of rows of the matrix in a panel.
func (p *Packer) PanelRows(panel int) int { return p.f.panelRows(panel) }

// PackedCols is the number of columns rounded up to 32.
func (p *Packer) PackedCols() int { return p.f.cols }

// Groups is the number of groups in a row.
func (p *Packer) Groups() int { return p.f.groups }

// hasPoints reports whether the layout has zero points.
func (p *Packer) hasPoints() bool { return p.f.zero0 >= 0 }

// NewPanel returns a panel of zeros with slices of the right lengths.
func (p *Packer) NewPanel() *packing.Panel {
	f := p.f
	panel := &packing.Panel{Rows: f.nr, Codes: make([]int8, f.nr*f.cols), Scales: make([]float32, f.nr*f.groups)}
	if p.hasPoints() {
		panel.FloatZeros = make([]float32, f.nr*f.groups)
	}
	if p.h.Flags&packing.FlagBias != 0 {
		panel.Bias = make([]float32, f.nr)
	}
	return panel
}

// checkArgs panics unless the slices have the lengths that packing.Panel documents.
func (p *Packer) checkArgs(packed []byte, panel *packing.Panel) {
	f := p.f
	zeros := 0
	if p.hasPoints() {
		zeros = f.nr * f.groups
	}
	switch {
	case len(packed) != f.panelBytes:
		panic(fmt.Sprintf("kleidiai: %d bytes for a panel of %d", len(packed), f.panelBytes))
	case panel.Rows < 1 || panel.Rows > f.nr:
		panic(fmt.Sprintf("kleidiai: %d rows in a panel of %d", panel.Rows, f.nr))
	case len(panel.Codes) != f.nr*f.cols, len(panel.Scales) != f.nr*f.groups, len(panel.Zeros) != 0, len(panel.FloatZeros) != zeros, panel.Bias != nil && len(panel.Bias) != f.nr:
		panic(fmt.Sprintf("kleidiai: a panel of %d codes, %d scales, %d integer and %d floating-point zero points and %d biases; want %d, %d, 0, %d and %d or none",
			len(panel.Codes), len(panel.Scales), len(panel.Zeros), len(panel.FloatZeros), len(panel.Bias), f.nr*f.cols, f.nr*f.groups, zeros, f.nr))
	}
}

// PackPanel packs p into dst. It does not check scales, zero points and codes, and stores the low
// bits of a code that does not fit.
func (p *Packer) PackPanel(dst []byte, src *packing.Panel) {
	p.checkArgs(dst, src)
	p.f.pack(dst, src)
}

// UnpackPanel unpacks all nr rows of a panel into dst and sets dst.Rows to nr.
func (p *Packer) UnpackPanel(dst *packing.Panel, src []byte) {
	dst.Rows = p.f.nr
	p.checkArgs(src, dst)
	f, codes := p.f, codeBytes(dst.Codes)
	for i := range f.nr {
		f.codes(codes[i*f.cols:][:f.cols], src, i)
		p.scales(dst.Scales[i*f.groups:][:f.groups], src, i)
		if dst.FloatZeros != nil {
			p.zeros(dst.FloatZeros[i*f.groups:][:f.groups], src, i)
		}
		if dst.Bias != nil {
			dst.Bias[i] = f.bias(src, i)
		}
	}
}

// scales reads the scales of row i of a panel, one a group.
func (p *Packer) scales(scales []float32, panel []byte, i int) {
	for g := range scales {
		scales[g] = p.f.scale(panel, i, g)
	}
}

// zeros reads the float32 zero points of row i of a panel, one a group.
func (p *Packer) zeros(zeros []float32, panel []byte, i int) {
	for g := range zeros {
		zeros[g] = p.f.zero(panel, i, g)
	}
}

// panelOf returns the panel that holds a row, and the row's index r in the panel.
func (p *Packer) panelOf(data []byte, row int) (panel []byte, i int) {
	if row < 0 || row >= p.f.n {
		panic(fmt.Sprintf("kleidiai: row %d of %d", row, p.f.n))
	}
	end := (row/p.f.nr + 1) * p.f.panelBytes
	if end > len(data) { // slicing alone would go up to the capacity
		panic(fmt.Sprintf("kleidiai: row %d of %d is past the %d bytes of data", row, p.f.n, len(data)))
	}
	return data[end-p.f.panelBytes : end], row % p.f.nr
}

// Row reads one row of data without unpacking its panel: K codes, G scales and, if the layout has
// zero points, the nearest integer to each of its G zero points. Any of the three may be nil.
func (p *Packer) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	panel, i := p.panelOf(data, row)
	f := p.f
	if codes != nil {
		f.codes(codeBytes(codes[:f.k]), panel, i)
	}
	if scales != nil {
		p.scales(scales[:f.groups], panel, i)
	}
	if zeros != nil && p.hasPoints() {
		for g := range zeros[:f.groups] {
			zeros[g], _ = packing.IntegerZero(f.zero(panel, i, g), f.scale(panel, i, g))
		}
	}
}

// FloatZeros reads the G stored zero points of one row of data: a weight is q * scale + zero. They
// are 0 if the layout has none.
func (p *Packer) FloatZeros(dst []float32, data []byte, row int) {
	panel, i := p.panelOf(data, row)
	p.zeros(dst[:p.f.groups], panel, i)
}

// DequantizeRow reads one row of data as K weights: float32(q * scale), or
// float32(float32(q * scale) + zero) where the layout has zero points.
func (p *Packer) DequantizeRow(dst []float32, data []byte, row int) {
	panel, i := p.panelOf(data, row)
	f := p.f
	dst = dst[:f.k]
	var codes [32]byte
	for g := range f.groups {
		scale, zero, group := f.scale(panel, i, g), f.zero(panel, i, g), f.data(panel, g)
		for k := 0; k < f.group && len(dst) > 0; k += 32 {
			f.decode32(&codes, group, i, k)
			run := dst[:min(32, len(dst))]
			dst = dst[len(run):]
			if f.zero0 >= 0 {
				for c := range run {
					run[c] = float32(float32(int8(codes[c]))*scale) + zero
				}
			} else {
				for c := range run {
					run[c] = float32(float32(int8(codes[c])) * scale)
				}
			}
		}
	}
}

// Bias reads the bias of one row: 0 without FlagBias.
func (p *Packer) Bias(data []byte, row int) float32 {
	panel, i := p.panelOf(data, row)
	return p.f.bias(panel, i)
}
