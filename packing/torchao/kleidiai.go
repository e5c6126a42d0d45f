package torchao

import (
	"bytes"
	"fmt"

	"github.com/lowbit-go/gq/packing"
)

// KleidiAI packs and reads the panels of one packing.LayoutTorchAOKleidiAI
// payload, TorchAO's type 3: KleidiAI's qsi4c32p with BF16 scales, that is
// packing.Lowbit, with TorchAO's header before it and TorchAO's padding: an
// odd number of rows is made even by a row of codes -8 and scales and bias 0.
// Rows past that repeat the last one, padding or not, as in KleidiAI's own.
//
// TorchAO gets float32 scales and drops the lower half of their bits. Codes are
// best chosen against scales that were rounded to BF16 before: dropping changes
// nothing then. A KleidiAI does not change and may be used by many goroutines at
// once; it implements packing.Packer, which says when methods panic.
type KleidiAI struct {
	*packing.Lowbit // the rows of the matrix without padding
	h               packing.Header
	prefix          []byte
}

// NewKleidiAI prepares packing and reading of a payload with header h. It fails
// as h.Validate does, and with *UnsupportedError for other layouts and for a
// payload that this machine cannot address.
func NewKleidiAI(h packing.Header) (*KleidiAI, error) {
	size, err := validate(h, packing.LayoutTorchAOKleidiAI)
	if err != nil {
		return nil, err
	}
	inner := h
	inner.Layout = packing.LayoutLowbit
	lowbit, err := packing.NewLowbit(inner.Canonical())
	if err != nil {
		return nil, err
	}
	if want := int64(HeaderSize) + int64(lowbit.Panels())*int64(lowbit.PanelBytes()); want != size {
		panic(fmt.Sprintf("torchao: %d bytes by the packed header, %d by the layout", size, want))
	}
	return &KleidiAI{lowbit, h, tiledHeader(typeKleidiAI, &h)}, nil
}

// Header returns the header that NewKleidiAI got.
func (l *KleidiAI) Header() packing.Header { return l.h }

// Prefix is TorchAO's header.
func (l *KleidiAI) Prefix() []byte { return l.prefix }

// PackPanel packs p into dst, PanelBytes() long. Scales, which must be BF16
// numbers, and codes are not checked.
func (l *KleidiAI) PackPanel(dst []byte, p *packing.Panel) {
	l.Lowbit.PackPanel(dst, p)
	if p.Rows%2 != 0 {
		l.pad(dst, p.Rows)
	}
}

// pad makes the rows of a panel from row r on TorchAO's padding. Such a row's
// nibbles are -8, and its sum is 0 like its scales.
func (l *KleidiAI) pad(panel []byte, r int) {
	const rows = 8 // of a panel, in both tiles
	L := int(l.h.Tile.KR) / 2
	k, groups := l.PackedCols(), l.Groups()
	tail := panel[len(panel)-2*4*rows:]
	for range groups {
		for range 16 / L * (k / groups / 32) { // segments: L bytes of each row
			segment := panel[:rows*L]
			for i := r * L; i < len(segment); i++ {
				segment[i] = 0x88
			}
			panel = panel[len(segment):]
		}
		clear(panel[2*r : 2*rows])
		panel = panel[2*rows:]
	}
	clear(tail[4*r : 4*rows])
	clear(tail[4*(rows+r):])
}

// Row reads one row of data, see packing.Packer.
func (l *KleidiAI) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	l.Lowbit.Row(codes, scales, zeros, data[HeaderSize:], row)
}

// DequantizeRow reads one row of data as K weights: float32(q) * scale, rounded
// once.
func (l *KleidiAI) DequantizeRow(dst []float32, data []byte, row int) {
	l.Lowbit.DequantizeRow(dst, data[HeaderSize:], row)
}

// Bias reads the bias of one row: 0 without packing.FlagBias.
func (l *KleidiAI) Bias(data []byte, row int) float32 {
	return l.Lowbit.Bias(data[HeaderSize:], row)
}

// Sum reads the stored sum of one row, see packing.Lowbit.
func (l *KleidiAI) Sum(data []byte, row int) float32 {
	return l.Lowbit.Sum(data[HeaderSize:], row)
}

// CheckPanel reports, as *packing.PanelError, what is wrong with panel number i
// of the payload, whose bytes are src: what packing.Lowbit.CheckPanel finds,
// and padding that is not TorchAO's.
func (l *KleidiAI) CheckPanel(i int, src []byte) error {
	rows := l.PanelRows(i)
	if rows%2 == 0 {
		return shift(l.Lowbit.CheckPanel(i, src))
	}
	// The last panel of an odd number of rows: check it as if it repeated its
	// last row, then the padding.
	p, again := l.NewPanel(), make([]byte, len(src))
	l.UnpackPanel(p, src)
	p.Rows = rows
	l.Lowbit.PackPanel(again, p)
	if err := l.Lowbit.CheckPanel(i, again); err != nil {
		return shift(err)
	}
	l.pad(again, rows)
	if !bytes.Equal(again, src) {
		at := 0
		for again[at] == src[at] {
			at++
		}
		return shift(&packing.PanelError{Panel: i, Offset: int64(i)*int64(len(src)) + int64(at), Msg: fmt.Sprintf("byte %d of the panel is %#02x; its codes, scales and biases make %#02x", at, src[at], again[at])})
	}
	return nil
}

// shift counts the offset of a *packing.PanelError from the start of TorchAO's
// header.
func shift(err error) error {
	if panel, ok := err.(*packing.PanelError); ok {
		panel.Offset += HeaderSize
	}
	return err
}
