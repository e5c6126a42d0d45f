package packing

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/buffer"
)

// A Packer packs and reads the panels of a payload of codes in any layout but LayoutPlain. [Lowbit]
// is a Packer; package packing/layouts makes the Packer for a header.
//
// A Packer is immutable; many goroutines may use it at once. The argument data of a method is the
// whole payload after its packed header: len(Prefix()) + Panels()*PanelBytes() bytes, the header's
// DataSize. A panel is PanelBytes() bytes of the payload. Methods panic when a slice is too short
// or a row out of range, but never because of the bytes' values: damaged bytes give wrong weights,
// see CheckPanel.
type Packer interface {
	// Header returns the header that the Packer was made for.
	Header() Header
	// Prefix returns the bytes before the first panel: TorchAO's own header, or nil in the other
	// layouts. The caller must not change the bytes.
	Prefix() []byte
	// Panels is the number of panels.
	Panels() int
	// PanelBytes is the size of a panel.
	PanelBytes() int
	// PanelRows is the number of rows of the matrix in a panel: nr, or fewer in the last panel.
	PanelRows(panel int) int
	// PackedCols is the row stride of Panel.Codes: the columns with the layout's padding.
	PackedCols() int
	// Groups is the number of groups in a row.
	Groups() int
	// NewPanel returns a panel of zeros with slices of the right lengths. Zeros and FloatZeros are nil
	// unless the header has zero points of their kind; Bias is nil unless the header has FlagBias.
	NewPanel() *Panel
	// PackPanel packs p into the PanelBytes() bytes of dst and sets every byte. It does not check
	// codes, scales and zero points, and does not allocate.
	PackPanel(dst []byte, p *Panel)
	// UnpackPanel unpacks all nr rows of a panel into p, with slices of NewPanel's lengths, and sets
	// p.Rows to nr: a panel does not record its padding rows, but PanelRows computes the number.
	UnpackPanel(p *Panel, src []byte)
	// Row reads a row without unpacking its panel: K codes, G scales and, if the layout has zero
	// points, G zero points. Any of the three may be nil. Zero points are in units of Header.ZeroUnit.
	// Floating-point zero points (ZeroF32) are rounded to integers, see IntegerZero; FloatZeros of
	// kleidiai.Packer reads the unrounded zero points.
	Row(codes []int8, scales []float32, zeros []int8, data []byte, row int)
	// DequantizeRow reads a row as K weights: float32(float32(q-z) * scale), or
	// float32(float32(q*scale) + zero) with the floating-point zero points of LayoutQAI4C32P.
	DequantizeRow(dst []float32, data []byte, row int)
	// Bias reads the bias of a row: 0 without FlagBias.
	Bias(data []byte, row int) float32
	// CheckPanel reports, as *PanelError, the first defect of panel i of the payload, with bytes src.
	// Unpacking and packing an accepted panel gives the same bytes.
	CheckPanel(i int, src []byte) error
}

// FloatSums is implemented by Packers of panels with the float32 sum of each row's weights. Kernels
// multiply the sum by the activations' zero point. A stored sum must be finite: the bits of a NaN
// differ between CPUs, and products with an infinity are useless. PackPanel does not check the
// sums.
type FloatSums interface {
	// PanelSum reads the sum of a row of a panel.
	PanelSum(panel []byte, row int) float32
}

var (
	_ Packer    = (*Lowbit)(nil)
	_ FloatSums = (*Lowbit)(nil)
)

// Panel holds the rows of a panel, unpacked. A Panel has nr rows, G groups and PackedCols columns.
type Panel struct {
	// Rows is the number of rows of the matrix in this panel, 1..nr. PackPanel fills the other rows
	// as the layout demands (most repeat the last row) and ignores their entries in the slices.
	Rows int
	// Codes is nr x PackedCols: each row's codes in order of column, with 0 past the last column.
	Codes []int8
	// Scales is nr x G; each must be a scale of its dtype, see ScaleDtype.IsScale.
	Scales []float32
	// Zeros is nr x G zero points of kind ZeroInt8 or ZeroFraction, in Header.ZeroUnit; else nil.
	Zeros []int8
	// FloatZeros is nr x G zero points of kind ZeroF32, nil for the other kinds. Each is finite.
	FloatZeros []float32
	// Bias is nr values, or nil for none.
	Bias []float32
}

// Codes is the [Packer] of a LayoutCodes payload: each code is a signed byte, row-major. Tools
// without kernels can read the codes. A panel is a row.
//
// Scales (in the header's scale dtype) and int8 zero points, if any, are in companion payloads,
// row-major, Groups() values a row. Row and DequantizeRow need the companions; WithCompanions
// attaches them. The layout holds no bias.
type Codes struct {
	Geometry
	offset     float32 // zero point of every group if none are stored: 0 or -1/2
	unit       float32 // of stored zero points
	companions Companions
}

// NewCodes fails like NewGeometry.
func NewCodes(h Header) (*Codes, error) {
	g, err := NewGeometry(h, LayoutCodes)
	if err != nil {
		return nil, err
	}
	c := &Codes{Geometry: g, unit: h.ZeroUnit()}
	if h.Grid == GridHalfStep {
		c.offset = -0.5
	}
	return c, nil
}

// WithCompanions returns a Codes that also reads scales and zero points from the companions. zeros
// is empty if the header has no zero points. A companion of the wrong size is an error.
func (c *Codes) WithCompanions(scales, zeros []byte) (*Codes, error) {
	companions, err := NewCompanions(c.h, scales, zeros)
	if err != nil {
		return nil, err
	}
	with := *c
	with.companions = companions
	return &with, nil
}

// PackPanel copies the row's codes. Scales and zero points go into the companions.
func (c *Codes) PackPanel(dst []byte, p *Panel) { copy(dst[:c.k], buffer.Bytes(p.Codes[:c.k])) }

func (c *Codes) UnpackPanel(p *Panel, src []byte) {
	p.Rows = 1
	copy(buffer.Bytes(p.Codes[:c.k]), src[:c.k])
}

func (c *Codes) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	if codes != nil {
		src, _ := c.PanelOf(data, row)
		copy(buffer.Bytes(codes[:c.k]), src)
	}
	c.companions.Row(scales, zeros, row)
}

// DequantizeRow reads a row as weights, with the companions.
func (c *Codes) DequantizeRow(dst []float32, data []byte, row int) {
	codes, _ := c.PanelOf(data, row)
	for g := range c.groups {
		scale, zero := c.companions.Scale(row, g), c.offset
		if c.h.ZeroKind.IsInt8() {
			zero = float32(float32(c.companions.Zero(row, g)) * c.unit)
		}
		for k := g * c.group; k < min((g+1)*c.group, c.k); k++ {
			dst[k] = float32((float32(int8(codes[k])) - zero) * scale)
		}
	}
}

func (c *Codes) Bias([]byte, int) float32 { return 0 }

// CheckCompanions is Companions.Check. It panics if c has no companions.
func (c *Codes) CheckCompanions() error { return c.companions.Check() }

// CheckPanel reports the first code that does not fit the header's number of bits.
func (c *Codes) CheckPanel(i int, src []byte) error {
	lo, hi := -1<<(c.h.Bits-1), 1<<(c.h.Bits-1)-1
	for k, b := range src[:c.k] {
		if q := int(int8(b)); q < lo || q > hi {
			return &PanelError{i, int64(k), fmt.Sprintf("code %d of column %d does not fit %d bits", q, k, c.h.Bits)}
		}
	}
	return nil
}
