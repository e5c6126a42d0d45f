package packing

import (
	"fmt"
	"math"
)

// Codes packs and reads one LayoutCodes payload: each code is a signed byte, row-major, which tools
// without kernels can read. A panel is a row.
//
// Scales (in the header's scale dtype) and int8 zero points, if any, are in companion payloads,
// row-major, Groups() values a row. Row and DequantizeRow need the companions; WithCompanions
// attaches them. The layout holds no bias.
type Codes struct {
	h              Header
	rows, k        int
	group, groups  int
	offset         float32 // zero point of every group if none are stored: 0 or -1/2
	scales, zeroes []byte  // the companions, or nil
}

// NewCodes prepares packing and reading of a payload with header h. It fails as
// h.Validate does, and with *UnsupportedError for other layouts and for a
// payload that this machine cannot address.
func NewCodes(h Header) (*Codes, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	if h.Layout != LayoutCodes {
		return nil, &UnsupportedError{"layout", offLayout, fmt.Sprintf("layout %s, want %s", h.Layout, LayoutCodes)}
	}
	size, err := h.DataSize()
	if err != nil {
		return nil, err
	}
	if size > math.MaxInt/8 {
		return nil, &UnsupportedError{"rows", offRows, fmt.Sprintf("%d bytes are more than this machine can address", size)}
	}
	c := &Codes{h: h, rows: int(h.Rows), k: int(h.Cols), groups: int(h.Groups()), group: int(h.Cols)}
	if h.Group != 0 && h.Group < h.Cols {
		c.group = int(h.Group)
	}
	if h.Grid == GridHalfStep {
		c.offset = -0.5
	}
	return c, nil
}

// WithCompanions returns a Codes that also reads scales and zero points from the given companions.
// zeros is empty if the header has no zero points. It fails if a companion has the wrong size.
func (c *Codes) WithCompanions(scales, zeros []byte) (*Codes, error) {
	n := c.rows * c.groups
	wantZeros := 0
	if c.h.ZeroKind == ZeroInt8 {
		wantZeros = n
	}
	if len(scales) != n*c.h.ScaleDtype.Bytes() || len(zeros) != wantZeros {
		return nil, fmt.Errorf("packing: companions of %d bytes of scales and %d bytes of zero points, want %d and %d", len(scales), len(zeros), n*c.h.ScaleDtype.Bytes(), wantZeros)
	}
	with := *c
	with.scales, with.zeroes = scales, zeros
	return &with, nil
}

// Header returns the header that NewCodes got.
func (c *Codes) Header() Header { return c.h }

// Prefix returns nil.
func (c *Codes) Prefix() []byte { return nil }

// Panels is the number of rows.
func (c *Codes) Panels() int { return c.rows }

// PanelBytes is the number of columns.
func (c *Codes) PanelBytes() int { return c.k }

// PanelRows is 1.
func (c *Codes) PanelRows(int) int { return 1 }

// PackedCols is the number of columns.
func (c *Codes) PackedCols() int { return c.k }

// Groups is the number of groups in a row.
func (c *Codes) Groups() int { return c.groups }

// NewPanel returns a panel of one row.
func (c *Codes) NewPanel() *Panel {
	p := &Panel{Rows: 1, Codes: make([]int8, c.k), Scales: make([]float32, c.groups)}
	if c.h.ZeroKind == ZeroInt8 {
		p.Zeros = make([]int8, c.groups)
	}
	return p
}

// PackPanel copies the row's codes. Scales and zero points go into the companions.
func (c *Codes) PackPanel(dst []byte, p *Panel) { copy(dst[:c.k], codeBytes(p.Codes[:c.k])) }

// UnpackPanel copies the row's codes; scales and zero points are not in the panel.
func (c *Codes) UnpackPanel(p *Panel, src []byte) {
	p.Rows = 1
	copy(codeBytes(p.Codes[:c.k]), src[:c.k])
}

// rowOf returns the codes of a row.
func (c *Codes) rowOf(data []byte, row int) []byte {
	if row < 0 || row >= c.rows {
		panic(fmt.Sprintf("packing: row %d of %d", row, c.rows))
	}
	data = data[row*c.k:]
	_ = data[c.k-1] // slicing alone would reach into spare capacity
	return data[:c.k]
}

// Row reads the codes, scales and zero points of a row. Any of the three may be nil; scales and
// zero points need the companions.
func (c *Codes) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	if codes != nil {
		copy(codeBytes(codes[:c.k]), c.rowOf(data, row))
	}
	for g := range scales {
		scales[g] = c.scale(row, g)
	}
	for g := range zeros {
		zeros[g] = int8(c.zeroes[row*c.groups+g])
	}
}

func (c *Codes) scale(row, g int) float32 {
	n := c.h.ScaleDtype.Bytes()
	return c.h.ScaleDtype.get(c.scales[(row*c.groups+g)*n:])
}

// DequantizeRow reads one row as weights. It needs the companions.
func (c *Codes) DequantizeRow(dst []float32, data []byte, row int) {
	codes := c.rowOf(data, row)
	for g := range c.groups {
		scale, zero := c.scale(row, g), c.offset
		if c.h.ZeroKind == ZeroInt8 {
			zero = float32(int8(c.zeroes[row*c.groups+g]))
		}
		for k := g * c.group; k < min((g+1)*c.group, c.k); k++ {
			dst[k] = float32((float32(int8(codes[k])) - zero) * scale)
		}
	}
}

// Bias is 0: the layout holds none.
func (c *Codes) Bias([]byte, int) float32 { return 0 }

// CheckCompanions reports the first invalid scale, as *PanelError with its offset in the companion:
// a scale whose magnitude its dtype cannot hold, or a scale that is not positive despite
// FlagPositiveScales. Every byte is a valid zero point. It panics if c has no companions.
func (c *Codes) CheckCompanions() error {
	dtype := c.h.ScaleDtype
	for i := range c.rows * c.groups {
		row, g, at := i/c.groups, i%c.groups, int64(i)*int64(dtype.Bytes())
		switch s := c.scale(row, g); {
		case !dtype.IsScale(s):
			return &PanelError{row, at, fmt.Sprintf("the scale of row %d group %d is %v, want a magnitude of %v to %v (%s)", row, g, s, dtype.Smallest(), dtype.Max(), dtype)}
		case s < 0 && c.h.Flags&FlagPositiveScales != 0:
			return &PanelError{row, at, fmt.Sprintf("the scale of row %d group %d is %v in a payload of positive scales", row, g, s)}
		}
	}
	return nil
}

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
