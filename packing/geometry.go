package packing

import (
	"fmt"
	"math"
	"slices"
)

// Geometry states where the panels of a payload are and how large. Packers embed Geometry: its
// methods are the methods of Packer that follow from the header alone.
type Geometry struct {
	h          Header
	rows, k    int // of the matrix
	nr         int // rows of a panel
	packedCols int // columns of a row of a panel
	group      int // columns of a group, at most k
	groups     int // of a row
	start      int // offset of the first panel
	panels     int
	panelBytes int
}

// NewGeometry fails like h.Validate. A layout other than layouts, or a payload that this machine
// cannot address, is an *UnsupportedError.
func NewGeometry(h Header, layouts ...Layout) (Geometry, error) {
	if err := h.Validate(); err != nil {
		return Geometry{}, err
	}
	if !slices.Contains(layouts, h.Layout) {
		return Geometry{}, &UnsupportedError{"layout", offLayout, fmt.Sprintf("layout %s, want %s", h.Layout, orList(layouts))}
	}
	size, err := h.DataSize()
	if err != nil {
		return Geometry{}, err
	}
	// A panel as int8 codes fits an int, too: at most 8 times the size of the packed bytes.
	if size > math.MaxInt/8 {
		return Geometry{}, &UnsupportedError{"rows", offRows, fmt.Sprintf("%d bytes are more than this machine can address", size)}
	}
	g := Geometry{h: h, rows: int(h.Rows), k: int(h.Cols), nr: max(1, int(h.Tile.NR)), group: int(h.Cols), groups: int(h.Groups())}
	if g.groups > 1 {
		g.group = int(h.Group)
	}
	g.packedCols = g.k
	if f := h.Layout.foreign(); f != nil {
		g.start = int(f.prefix)
	}
	if h.Layout.padded() {
		g.packedCols = (g.k + 31) / 32 * 32
	}
	g.panels = (g.rows-1)/g.nr + 1
	g.panelBytes = (int(size) - g.start) / g.panels
	return g, nil
}

// padded reports whether the layout's panels have columns up to a multiple of 32.
func (l Layout) padded() bool {
	f := l.foreign()
	return l == LayoutLowbit || f != nil && f.padded
}

func (g *Geometry) Header() Header { return g.h }

// Prefix returns nil: most layouts have no header of their own.
func (g *Geometry) Prefix() []byte { return nil }

func (g *Geometry) Panels() int { return g.panels }

func (g *Geometry) PanelBytes() int { return g.panelBytes }

func (g *Geometry) PanelRows(panel int) int { return min(g.nr, g.rows-panel*g.nr) }

func (g *Geometry) PackedCols() int { return g.packedCols }

func (g *Geometry) Groups() int { return g.groups }

func (g *Geometry) NewPanel() *Panel {
	p := &Panel{Rows: g.nr, Codes: make([]int8, g.nr*g.packedCols), Scales: make([]float32, g.nr*g.groups)}
	switch g.h.ZeroKind {
	case ZeroInt8, ZeroFraction:
		p.Zeros = make([]int8, g.nr*g.groups)
	case ZeroF32:
		p.FloatZeros = make([]float32, g.nr*g.groups)
	}
	if g.h.Flags&FlagBias != 0 {
		p.Bias = make([]float32, g.nr)
	}
	return p
}

// CheckArgs panics unless packed has the size of a panel and p's slices Panel's documented lengths.
func (g *Geometry) CheckArgs(packed []byte, p *Panel) {
	zeros, floatZeros := 0, 0
	switch g.h.ZeroKind {
	case ZeroInt8, ZeroFraction:
		zeros = g.nr * g.groups
	case ZeroF32:
		floatZeros = g.nr * g.groups
	}
	switch {
	case len(packed) != g.panelBytes:
		panic(fmt.Sprintf("packing: %d bytes for a panel of %d", len(packed), g.panelBytes))
	case p.Rows < 1 || p.Rows > g.nr:
		panic(fmt.Sprintf("packing: %d rows in a panel of %d", p.Rows, g.nr))
	case len(p.Codes) != g.nr*g.packedCols, len(p.Scales) != g.nr*g.groups, len(p.Zeros) != zeros, len(p.FloatZeros) != floatZeros, p.Bias != nil && len(p.Bias) != g.nr:
		panic(fmt.Sprintf("packing: a panel of %d codes, %d scales, %d integer and %d floating-point zero points and %d biases; want %d, %d, %d, %d and %d or none",
			len(p.Codes), len(p.Scales), len(p.Zeros), len(p.FloatZeros), len(p.Bias), g.nr*g.packedCols, g.nr*g.groups, zeros, floatZeros, g.nr))
	}
}

// CheckIndex panics unless src has the size of a panel and there is a panel i.
func (g *Geometry) CheckIndex(i int, src []byte) {
	if i < 0 || i >= g.panels || len(src) != g.panelBytes {
		panic(fmt.Sprintf("packing: panel %d of %d, %d bytes of %d", i, g.panels, len(src), g.panelBytes))
	}
}

// PanelOf returns the panel of data that holds a row, and the row's index r in the panel.
func (g *Geometry) PanelOf(data []byte, row int) (panel []byte, r int) {
	if row < 0 || row >= g.rows {
		panic(fmt.Sprintf("packing: row %d of %d", row, g.rows))
	}
	data = data[g.start+row/g.nr*g.panelBytes:]
	_ = data[g.panelBytes-1] // slicing alone would reach into spare capacity
	return data[:g.panelBytes], row % g.nr
}

// PanelErrorf reports a defect at an offset in panel i, as *PanelError.
func (g *Geometry) PanelErrorf(i, offset int, format string, args ...any) error {
	return &PanelError{i, int64(g.start) + int64(i)*int64(g.panelBytes) + int64(offset), fmt.Sprintf(format, args...)}
}

// Companions are the scales, in the header's scale dtype, and the int8 zero points, if any, of a
// LayoutCodes or LayoutTorchAOEmbedding payload. Both are payloads of their own, row-major,
// Groups() values a row.
type Companions struct {
	rows, groups  int
	dtype         ScaleDtype
	positive      bool
	zero          bool // a scale may be 0
	scales, zeros []byte
}

// NewCompanions reads the companions of a payload with header h in place; the bytes must not
// change. A companion of the wrong size is an error. Check checks the values.
func NewCompanions(h Header, scales, zeros []byte) (Companions, error) {
	c := Companions{int(h.Rows), int(h.Groups()), h.ScaleDtype, h.Flags&FlagPositiveScales != 0, h.HoldsZeroScales(), scales, zeros}
	n := c.rows * c.groups
	wantScales, wantZeros := n*c.dtype.Bytes(), 0
	if h.ZeroKind.IsInt8() {
		wantZeros = n
	}
	if len(scales) != wantScales || len(zeros) != wantZeros {
		return Companions{}, fmt.Errorf("packing: companions of %d bytes of scales and %d bytes of zero points, want %d and %d", len(scales), len(zeros), wantScales, wantZeros)
	}
	return c, nil
}

// Scale returns the scale of group g of a row.
func (c *Companions) Scale(row, g int) float32 {
	return c.dtype.get(c.scales[(row*c.groups+g)*c.dtype.Bytes():])
}

// Zero returns the zero point of group g of a row.
func (c *Companions) Zero(row, g int) int8 { return int8(c.zeros[row*c.groups+g]) }

// Row reads the scales of a row and, if there are any, its zero points. Either may be nil.
func (c *Companions) Row(scales []float32, zeros []int8, row int) {
	if scales == nil && zeros == nil {
		return
	}
	c.need()
	for g := range c.groups {
		if scales != nil {
			scales[g] = c.Scale(row, g)
		}
		if zeros != nil && len(c.zeros) > 0 {
			zeros[g] = c.Zero(row, g)
		}
	}
}

func (c *Companions) need() {
	if c.scales == nil {
		panic("packing: scales and zero points of this layout need WithCompanions")
	}
}

// Check reports the first invalid scale, as *PanelError with its offset in the companion: a scale
// beyond its dtype's range, or negative despite FlagPositiveScales. Every byte is a
// valid zero point.
func (c *Companions) Check() error {
	c.need()
	for i := range c.rows * c.groups {
		row, g, at := i/c.groups, i%c.groups, int64(i)*int64(c.dtype.Bytes())
		switch s := c.Scale(row, g); {
		case !c.dtype.IsScale(s) && !(s == 0 && c.zero):
			return &PanelError{row, at, fmt.Sprintf("the scale of row %d group %d is %v, want a magnitude of %v to %v (%s)", row, g, s, c.dtype.Smallest(), c.dtype.Max(), c.dtype)}
		case s < 0 && c.positive:
			return &PanelError{row, at, fmt.Sprintf("the scale of row %d group %d is %v in a payload of positive scales", row, g, s)}
		}
	}
	return nil
}
