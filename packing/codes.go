package packing

import "fmt"

// Codes packs and reads one LayoutCodes payload: each code is a signed byte, row-major, which tools
// without kernels can read. A panel is a row.
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

// NewCodes prepares packing and reading of a payload with header h. It fails like NewGeometry.
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

// WithCompanions returns a Codes that also reads scales and zero points from the given companions.
// zeros is empty if the header has no zero points. It fails if a companion has the wrong size.
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
func (c *Codes) PackPanel(dst []byte, p *Panel) { copy(dst[:c.k], codeBytes(p.Codes[:c.k])) }

// UnpackPanel copies the row's codes; scales and zero points are not in the panel.
func (c *Codes) UnpackPanel(p *Panel, src []byte) {
	p.Rows = 1
	copy(codeBytes(p.Codes[:c.k]), src[:c.k])
}

// Row reads the codes, scales and zero points of a row. Any of the three may be nil; scales and
// zero points need the companions.
func (c *Codes) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	if codes != nil {
		src, _ := c.PanelOf(data, row)
		copy(codeBytes(codes[:c.k]), src)
	}
	c.companions.Row(scales, zeros, row)
}

// DequantizeRow reads one row as weights. It needs the companions.
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

// Bias is 0: the layout holds none.
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
