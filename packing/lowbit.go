package packing

import (
	"fmt"
	"math"
	"sync"
	"unsafe"
)

// maxRows is the largest NR of a tile.
const maxRows = 8

// Lowbit packs and reads the panels of one LayoutLowbit payload; the package's documentation
// describes the layout. A Lowbit is immutable; many goroutines may use it at once.
//
// The argument data of a method is the whole payload after its packed header, Panels()*PanelBytes()
// bytes; a panel is PanelBytes() bytes of it. Methods panic when a slice is too short or a row out
// of range, but never because of the bytes' values: damaged bytes give wrong weights, see
// CheckPanel.
type Lowbit struct {
	h       Header
	bits    int
	nr      int // rows of a panel
	width   int // L: values of a row in a lane, 4 or 8
	pairs   int // pairs of lanes (h = 0, 1) of a segment s: nr*L/16
	k       int // columns
	k32     int // columns rounded up to 32
	group   int // columns of a group, at most k
	groups  int
	panels  int
	zeros   bool       // each group has a zero point
	offset  float32    // zero point of every group if none are stored: 0 or -1/2
	scratch *sync.Pool // of *[2]*panelRow

	// A code q is stored as q&mask ^ flip: in two's complement at 4 and 8 bits, else as q +
	// 2^(b-1).
	mask, flip uint64
	values     *[256]float32 // the values of stored codes

	blockBytes  int // codes of 32 columns of a panel
	recordBytes int // scales and zero points of a group of a panel
	tailStart   int // offset of the sums in a panel; the biases follow
	panelBytes  int
}

// NewLowbit prepares packing and reading of a payload with header h. It fails like h.Validate, and
// with *UnsupportedError for another layout and for a payload that this machine cannot address.
func NewLowbit(h Header) (*Lowbit, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	if h.Layout != LayoutLowbit {
		return nil, &UnsupportedError{"layout", offLayout, fmt.Sprintf("layout %s, want %s", h.Layout, LayoutLowbit)}
	}
	size, err := h.DataSize()
	if err != nil {
		return nil, err
	}
	// A panel as int8 codes and a row of it fit an int too: they are at most
	// 8 times as long as the packed bytes.
	if size > math.MaxInt/8 {
		return nil, &UnsupportedError{"rows", offRows, fmt.Sprintf("%d bytes are more than this machine can address", size)}
	}
	l := &Lowbit{
		h: h, bits: int(h.Bits), nr: int(h.Tile.NR), width: int(h.Tile.KR) / 2, k: int(h.Cols),
		groups: int(h.Groups()), zeros: h.ZeroKind == ZeroInt8,
	}
	l.pairs = l.nr * l.width / 16
	l.k32 = (l.k + 31) / 32 * 32
	l.group = l.k
	if l.groups > 1 {
		l.group = int(h.Group)
	}
	if h.Grid == GridHalfStep {
		l.offset = -0.5
	}
	l.mask, l.flip = uint64(ones)*(1<<l.bits-1), uint64(ones)<<(l.bits-1)
	if l.bits == 4 || l.bits == 8 {
		l.flip = 0
	}
	l.values = &valueTables()[l.bits]
	l.blockBytes = 4 * l.bits * l.nr
	l.recordBytes = l.nr * h.ScaleDtype.Bytes()
	if l.zeros {
		l.recordBytes += l.nr
	}
	l.tailStart = l.k32/32*l.blockBytes + l.groups*l.recordBytes
	l.panelBytes = l.tailStart + 8*l.nr
	l.panels = int(size) / l.panelBytes
	l.scratch = &sync.Pool{New: func() any { return &[2]*panelRow{l.newPanelRow(), l.newPanelRow()} }}
	return l, nil
}

// Header returns the header that NewLowbit got.
func (l *Lowbit) Header() Header { return l.h }

// Prefix returns nil: the first panel is at the start of the data.
func (l *Lowbit) Prefix() []byte { return nil }

// Panels is the number of panels: rows / nr, rounded up.
func (l *Lowbit) Panels() int { return l.panels }

// PanelBytes is the size of a panel.
func (l *Lowbit) PanelBytes() int { return l.panelBytes }

// PanelRows is the number of rows of the matrix in a panel: nr, or fewer in the last panel.
func (l *Lowbit) PanelRows(panel int) int {
	if panel == l.panels-1 {
		return int(l.h.Rows) - panel*l.nr
	}
	return l.nr
}

// Groups is the number of groups in a row.
func (l *Lowbit) Groups() int { return l.groups }

// PackedCols is the number of columns rounded up to 32.
func (l *Lowbit) PackedCols() int { return l.k32 }

// NewPanel returns a panel of zeros with slices of the right lengths; Bias is
// nil unless the header has FlagBias.
func (l *Lowbit) NewPanel() *Panel {
	p := &Panel{Rows: l.nr, Codes: make([]int8, l.nr*l.k32), Scales: make([]float32, l.nr*l.groups)}
	if l.zeros {
		p.Zeros = make([]int8, l.nr*l.groups)
	}
	if l.h.Flags&FlagBias != 0 {
		p.Bias = make([]float32, l.nr)
	}
	return p
}

// checkArgs panics unless the slices have the lengths that Panel documents.
func (l *Lowbit) checkArgs(packed []byte, p *Panel) {
	zeros := 0
	if l.zeros {
		zeros = l.nr * l.groups
	}
	switch {
	case len(packed) != l.panelBytes:
		panic(fmt.Sprintf("packing: %d bytes for a panel of %d", len(packed), l.panelBytes))
	case p.Rows < 1 || p.Rows > l.nr:
		panic(fmt.Sprintf("packing: %d rows in a panel of %d", p.Rows, l.nr))
	case len(p.Codes) != l.nr*l.k32, len(p.Scales) != l.nr*l.groups, len(p.Zeros) != zeros, p.Bias != nil && len(p.Bias) != l.nr:
		panic(fmt.Sprintf("packing: a panel of %d codes, %d scales, %d zero points and %d biases; want %d, %d, %d and %d or none",
			len(p.Codes), len(p.Scales), len(p.Zeros), len(p.Bias), l.nr*l.k32, l.nr*l.groups, zeros, l.nr))
	}
}

// groupEnd is the column after group g.
func (l *Lowbit) groupEnd(g int) int { return min((g+1)*l.group, l.k) }

// blockStart is the offset of block b's codes in a panel. It follows b blocks and the records of
// the groups that end in those blocks.
func (l *Lowbit) blockStart(b int) int {
	return b*l.blockBytes + 32*b/l.group*l.recordBytes
}

// recordStart is the offset of group g's scales in a panel: after the block in which g ends and the
// records of the groups before g.
func (l *Lowbit) recordStart(g int) int {
	return ((l.groupEnd(g)-1)/32+1)*l.blockBytes + g*l.recordBytes
}

// BlockOffset is the offset in a panel of the codes of columns 32b to 32b+31. The blocks of one
// group are contiguous.
func (l *Lowbit) BlockOffset(b int) int { return l.blockStart(b) }

// RecordOffset is the offset in a panel of the nr scales of group g. If the layout has zero points,
// nr int8 zero points follow.
func (l *Lowbit) RecordOffset(g int) int { return l.recordStart(g) }

// TailOffset is the offset in a panel of the nr float32 sums. The nr float32 biases follow.
func (l *Lowbit) TailOffset() int { return l.tailStart }

// codeBytes views codes as bytes, for reading and writing 8 at a time.
func codeBytes(q []int8) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(q))), len(q))
}
