package packing

import (
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
	Geometry
	bits    int
	width   int        // L: values of a row in a lane, 4 or 8
	pairs   int        // pairs of lanes (h = 0, 1) of a segment s: nr*L/16
	zeros   bool       // each group has a zero point
	offset  float32    // zero point of every group if none are stored: 0 or -1/2
	unit    float32    // of stored zero points
	scratch *sync.Pool // of *[2]*panelRow

	// A code q is stored as q&mask ^ flip: in two's complement at 4 and 8 bits, else as q +
	// 2^(b-1).
	mask, flip uint64
	values     *[256]float32 // the values of stored codes

	blockBytes  int // codes of 32 columns of a panel
	recordBytes int // scales and zero points of a group of a panel
	tailStart   int // offset of the sums in a panel; the biases follow
}

// NewLowbit prepares packing and reading of a payload with header h, of LayoutLowbit or of
// LayoutTorchAOKleidiAI, whose panels are lowbit panels. It fails like NewGeometry.
func NewLowbit(h Header) (*Lowbit, error) {
	g, err := NewGeometry(h, LayoutLowbit, LayoutTorchAOKleidiAI)
	if err != nil {
		return nil, err
	}
	l := &Lowbit{Geometry: g, bits: int(h.Bits), width: int(h.Tile.KR) / 2, zeros: h.ZeroKind.IsInt8(), unit: h.ZeroUnit()}
	l.pairs = l.nr * l.width / 16
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
	l.tailStart = l.panelBytes - 8*l.nr
	l.scratch = &sync.Pool{New: func() any { return &[2]*panelRow{l.newPanelRow(), l.newPanelRow()} }}
	return l, nil
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
