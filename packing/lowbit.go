package packing

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/internal/buffer"
)

// Lowbit is the [Packer] of a LayoutLowbit payload; the package's documentation describes the
// layout. Packer documents the methods, the argument data, and when methods panic.
type Lowbit struct {
	Geometry
	bits    int
	width   int        // L: values of a row in a lane, 4 or 8
	pairs   int        // pairs of lanes (h = 0, 1) of a segment s: nr*L/16
	zeros   bool       // each group has a zero point
	offset  float32    // zero point of every group if none are stored: 0 or -1/2
	unit    float32    // of stored zero points
	scratch *sync.Pool // of *[2]*panelRow

	// A code q is stored as q&mask ^ flip: in two's complement at 4 and 8 bits, else as q + 2^(b-1).
	mask, flip uint64
	values     *[256]float32 // the values of stored codes

	blockBytes  int // codes of 32 columns of a panel
	recordBytes int // scales and zero points of a group of a panel
	tailStart   int // offset of the sums in a panel; the biases follow
}

// NewLowbit takes headers of LayoutLowbit or of LayoutTorchAOKleidiAI. The panels of both are
// lowbit panels. NewLowbit fails like NewGeometry.
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

// BlockOffset is the offset in a panel of the codes of columns 32b to 32b+31: after b blocks and
// the records of the groups that end in those blocks. A group's blocks are contiguous.
func (l *Lowbit) BlockOffset(b int) int {
	return b*l.blockBytes + 32*b/l.group*l.recordBytes
}

// RecordOffset is the offset in a panel of group g's nr scales: after the block in which g ends and
// the records of the groups before g. nr int8 zero points, if any, follow.
func (l *Lowbit) RecordOffset(g int) int {
	return ((l.groupEnd(g)-1)/32+1)*l.blockBytes + g*l.recordBytes
}

// TailOffset is the offset in a panel of the nr float32 sums. The nr float32 biases follow.
func (l *Lowbit) TailOffset() int { return l.tailStart }

// PanelError reports a damaged panel.
type PanelError struct {
	Panel  int
	Offset int64 // of the wrong field, or of its block, in the payload's data
	Msg    string
}

func (e *PanelError) Error() string {
	return fmt.Sprintf("panel %d (data byte %d): %s", e.Panel, e.Offset, e.Msg)
}

type panelRow struct {
	codes  []int8 // K32
	scales []float32
	zeros  []int8 // nil if there are none
}

// newPanelRow allocates at most twice the memory of the packed panel, so checking a hostile file
// needs little more memory than its size.
func (l *Lowbit) newPanelRow() *panelRow {
	row := &panelRow{codes: make([]int8, l.packedCols), scales: make([]float32, l.groups)}
	if l.zeros {
		row.zeros = make([]int8, l.groups)
	}
	return row
}

func (row *panelRow) read(l *Lowbit, panel []byte, r int) {
	l.rowCodes(buffer.Bytes(row.codes), panel, r)
	l.scales(row.scales, panel, r)
	if l.zeros {
		l.zeroPoints(row.zeros, panel, r)
	}
}

// CheckPanel reports the first defect of panel i of the payload, with bytes src, as *PanelError.
// Defects are:
//   - a scale beyond its dtype's range, or not positive despite FlagPositiveScales
//   - a bias that is not finite, or a bias other than 0 without FlagBias
//   - codes other than 0 past the last column
//   - a stored sum that differs from the sum of the weights, or is not finite
//   - a padding row that does not repeat the last row
//
// Unpacking and packing an accepted panel gives the same bytes.
func (l *Lowbit) CheckPanel(i int, src []byte) error {
	l.CheckIndex(i, src)
	scratch := l.scratch.Get().(*[2]*panelRow)
	defer l.scratch.Put(scratch)
	row, rows := scratch[0], l.PanelRows(i)
	for r := range rows {
		row.read(l, src, r)
		if err := l.checkRow(i, src, r, row); err != nil {
			return err
		}
	}
	for r := rows; r < l.nr; r++ {
		if err := l.checkCopy(i, src, r, row, scratch[1]); err != nil {
			return err
		}
	}
	return nil
}

// checkRow checks row r of panel i, with the unpacked row in row.
func (l *Lowbit) checkRow(i int, panel []byte, r int, row *panelRow) error {
	dtype := l.h.ScaleDtype
	for g, s := range row.scales {
		at := l.RecordOffset(g) + r*dtype.Bytes()
		if !dtype.IsScale(s) && !(s == 0 && l.h.HoldsZeroScales()) {
			return l.PanelErrorf(i, at, "the scale of row %d group %d is %v, want a magnitude of %v to %v (%s)", r, g, s, dtype.Smallest(), dtype.Max(), dtype)
		}
		if s < 0 && l.h.Flags&FlagPositiveScales != 0 {
			return l.PanelErrorf(i, at, "the scale of row %d group %d is %v in a payload of positive scales", r, g, s)
		}
	}
	for k, q := range row.codes[l.k:] {
		if q != 0 {
			return l.PanelErrorf(i, l.BlockOffset(l.k/32), "row %d has code %d past its %d columns, at column %d", r, q, l.k, l.k+k)
		}
	}
	stored, sum := l.tail(panel, r), l.sum(buffer.Bytes(row.codes), row.scales, row.zeros)
	if math.Float32bits(stored) != math.Float32bits(sum) {
		return l.PanelErrorf(i, l.tailStart+4*r, "the sum of row %d is %v, its codes make %v", r, stored, sum)
	}
	if math.IsNaN(float64(stored)) || math.IsInf(float64(stored), 0) {
		return l.PanelErrorf(i, l.tailStart+4*r, "the sum of row %d is %v, want a finite number", r, stored)
	}
	bias, at := l.tail(panel, l.nr+r), l.tailStart+4*(l.nr+r)
	if math.IsNaN(float64(bias)) || math.IsInf(float64(bias), 0) {
		return l.PanelErrorf(i, at, "the bias of row %d is %v", r, bias)
	}
	if l.h.Flags&FlagBias == 0 && math.Float32bits(bias) != 0 {
		return l.PanelErrorf(i, at, "the bias of row %d is %v in a payload without one", r, bias)
	}
	return nil
}

// checkCopy checks that row r of panel i repeats the matrix's last row, and overwrites row.
func (l *Lowbit) checkCopy(i int, panel []byte, r int, last, row *panelRow) error {
	fail := func(offset int, what string) error {
		return l.PanelErrorf(i, offset, "row %d has another %s than the matrix's last row, which it repeats", r, what)
	}
	row.read(l, panel, r)
	for k, q := range row.codes {
		if q != last.codes[k] {
			return fail(l.BlockOffset(k/32), fmt.Sprintf("code at column %d", k))
		}
	}
	for g, s := range row.scales {
		if math.Float32bits(s) != math.Float32bits(last.scales[g]) {
			return fail(l.RecordOffset(g)+r*l.h.ScaleDtype.Bytes(), fmt.Sprintf("scale in group %d", g))
		}
	}
	if !slices.Equal(row.zeros, last.zeros) {
		return fail(l.RecordOffset(0)+l.nr*l.h.ScaleDtype.Bytes()+r, "zero point")
	}
	end := l.PanelRows(i) - 1
	for j, what := range []string{"sum", "bias"} {
		if at := j*l.nr + r; math.Float32bits(l.tail(panel, at)) != math.Float32bits(l.tail(panel, j*l.nr+end)) {
			return fail(l.tailStart+4*at, what)
		}
	}
	return nil
}
