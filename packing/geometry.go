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
