package torchao

import (
	"fmt"
	"math"
	"sync"

	"github.com/lowbit-go/gq/packing"
)

// nr is the number of rows of a panel of types 1 and 3.
const nr = 8

// chunkCols is the number of columns of each of the panel's 8 rows in a unit of 128 codes. Lane
// 4h+p of the unit is half h, 8 columns, of rows 2p and 2p+1.
const chunkCols = 16

// Linear packs and reads the panels of one packing.LayoutTorchAOLinear payload, TorchAO's type 1.
// With G groups of g columns, a panel is
//
//	G times: 8 x g codes | 8 float32 scales | 8 int32 sums of codes [| 8 int32 zero points]
//	[8 float32 biases]
//
// Rows past the last one have codes, scales, sums, zero points and biases of 0. A Linear is
// immutable; many goroutines may use it at once. It implements packing.Packer, which states when
// methods panic.
type Linear struct {
	h          packing.Header
	planes     *bitPlanes
	prefix     []byte
	bits       int
	rows       int
	k          int // columns
	group      int // columns of a group
	groups     int
	panels     int
	zeros      bool
	bias       bool
	codeBytes  int // codes of a group in a panel; the group's record follows
	groupBytes int // codes and record of a group
	panelBytes int
	blank      func() packRow // a row past the last
}

// NewLinear prepares packing and reading of a payload with header h. It fails like h.Validate, and
// with *UnsupportedError for another layout and for a payload that this machine cannot address.
func NewLinear(h packing.Header) (*Linear, error) {
	size, err := validate(h, packing.LayoutTorchAOLinear)
	if err != nil {
		return nil, err
	}
	l := &Linear{
		h: h, planes: planesOf(int(h.Bits)), bits: int(h.Bits), rows: int(h.Rows), k: int(h.Cols),
		groups: int(h.Groups()), zeros: h.ZeroKind == packing.ZeroInt8, bias: h.Flags&packing.FlagBias != 0,
	}
	l.blank = sync.OnceValue(func() packRow {
		return packRow{codes: make([]byte, l.k), scales: make([]float32, l.groups), zeros: make([]int8, l.groups)}
	})
	l.group = l.k / l.groups
	l.codeBytes = l.group * l.bits // 8 rows; 8 codes take as many bytes as a code has bits
	l.groupBytes = l.codeBytes + 2*4*nr
	if l.zeros {
		l.groupBytes += 4 * nr
	}
	l.panelBytes = l.groups * l.groupBytes
	if l.bias {
		l.panelBytes += 4 * nr
	}
	l.panels = (l.rows + nr - 1) / nr
	l.prefix = tiledHeader(typeLinear, &h)
	if want := int64(HeaderSize) + int64(l.panels)*int64(l.panelBytes); want != size {
		panic(fmt.Sprintf("torchao: %d bytes by the packed header, %d by the layout", size, want))
	}
	return l, nil
}

// validate checks h for NewLinear, NewEmbedding and NewKleidiAI. It returns h's data size.
func validate(h packing.Header, layout packing.Layout) (int64, error) {
	if err := h.Validate(); err != nil {
		return 0, err
	}
	if h.Layout != layout {
		return 0, &UnsupportedError{"layout", fmt.Sprintf("%s, want %s", h.Layout, layout)}
	}
	size, err := h.DataSize()
	if err != nil {
		return 0, err
	}
	// A panel as int8 codes fits an int too: it is at most 8 times as long.
	if size > math.MaxInt/8 {
		return 0, &UnsupportedError{"rows", fmt.Sprintf("%d bytes are more than this machine can address", size)}
	}
	return size, nil
}

// Header returns the header that NewLinear got.
func (l *Linear) Header() packing.Header { return l.h }

// Prefix is TorchAO's header.
func (l *Linear) Prefix() []byte { return l.prefix }

// Panels is the number of panels: rows / 8, rounded up.
func (l *Linear) Panels() int { return l.panels }

// PanelBytes is the size of a panel.
func (l *Linear) PanelBytes() int { return l.panelBytes }

// PanelRows is 8, or fewer in the last panel.
func (l *Linear) PanelRows(panel int) int { return min(nr, l.rows-nr*panel) }

// PackedCols is the number of columns.
func (l *Linear) PackedCols() int { return l.k }

// Groups is the number of groups in a row.
func (l *Linear) Groups() int { return l.groups }

// NewPanel returns a panel of zeros with slices of the right lengths.
func (l *Linear) NewPanel() *packing.Panel {
	p := &packing.Panel{Rows: nr, Codes: make([]int8, nr*l.k), Scales: make([]float32, nr*l.groups)}
	if l.zeros {
		p.Zeros = make([]int8, nr*l.groups)
	}
	if l.bias {
		p.Bias = make([]float32, nr)
	}
	return p
}

// checkArgs panics unless the slices have NewPanel's lengths.
func (l *Linear) checkArgs(packed []byte, p *packing.Panel) {
	zeros, bias := 0, 0
	if l.zeros {
		zeros = nr * l.groups
	}
	if l.bias {
		bias = nr
	}
	switch {
	case len(packed) != l.panelBytes:
		panic(fmt.Sprintf("torchao: %d bytes for a panel of %d", len(packed), l.panelBytes))
	case p.Rows < 1 || p.Rows > nr:
		panic(fmt.Sprintf("torchao: %d rows in a panel of %d", p.Rows, nr))
	case len(p.Codes) != nr*l.k, len(p.Scales) != nr*l.groups, len(p.Zeros) != zeros, len(p.Bias) != bias:
		panic(fmt.Sprintf("torchao: a panel of %d codes, %d scales, %d zero points and %d biases; want %d, %d, %d and %d",
			len(p.Codes), len(p.Scales), len(p.Zeros), len(p.Bias), nr*l.k, nr*l.groups, zeros, bias))
	}
}
