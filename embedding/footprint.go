package embedding

import (
	"cmp"
	"slices"
	"sync"

	"github.com/lowbit-go/gq/packing"
)

// LineBytes is the size of the cache lines that Footprint counts.
const LineBytes = 64

// Footprint is what the lookup of one row reads.
type Footprint struct {
	Bytes int `json:"bytes"`       // that hold codes of the row, its scales or zero points
	Lines int `json:"cache_lines"` // of LineBytes that these lie in
}

// Footprint computes what the lookup of row id reads, out of the geometry of the
// layout as docs/FORMAT.md gives it; it reads none of it. Codes past the last
// column count as the row's own. Each part of the table is taken to start at a
// multiple of LineBytes, as it does in a mapped .gqf. Unlike lookups, Footprint
// allocates. It fails with [*IDError].
func (t *Table) Footprint(id int) (Footprint, error) {
	if id < 0 || id >= t.rows {
		return Footprint{}, &IDError{0, int64(id), t.rows}
	}
	return t.spans(id).footprint(), nil
}

// spans lists what Footprint counts.
func (t *Table) spans(id int) spans {
	s := spans{}
	switch h := &t.h; h.Layout {
	case packing.LayoutPlain:
		s.row(inData, id, t.cols*h.Dtype.Bits()/8)
	case packing.LayoutCodes, packing.LayoutTorchAOEmbedding:
		s.companions(h, id)
	case packing.LayoutLowbit, packing.LayoutTorchAOKleidiAI:
		s.lowbit(h, id)
	case packing.LayoutTorchAOLinear:
		s.torchAOLinear(h, id)
	default:
		s.kleidiAI(h, id)
	}
	return s
}

// part is one of the byte slices of Parts.
type part uint8

const (
	inData part = iota
	inScales
	inZeros
)

// span is a run of bytes of a part.
type span struct {
	part  part
	start int
	bytes int
}

// spans are what a lookup reads, each byte in one of them.
type spans []span

func (s *spans) add(p part, start, bytes int) { *s = append(*s, span{p, start, bytes}) }

// row adds row id of rows that lie one behind the other.
func (s *spans) row(p part, id, bytes int) { s.add(p, id*bytes, bytes) }

func (s spans) footprint() Footprint {
	slices.SortFunc(s, func(a, b span) int { return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.start, b.start)) })
	var f Footprint
	of, next := part(0), 0 // the lines of part of before next are counted
	for _, r := range s {
		f.Bytes += r.bytes
		if r.part != of {
			of, next = r.part, 0
		}
		first, end := max(next, r.start/LineBytes), (r.start+r.bytes-1)/LineBytes+1
		f.Lines += max(0, end-first)
		next = max(next, end)
	}
	return f
}

// companions adds a row of a layout whose scales and zero points lie apart.
func (s *spans) companions(h *packing.Header, id int) {
	start, bytes := 0, int(h.Cols) // LayoutCodes has a byte for each
	if h.Layout == packing.LayoutTorchAOEmbedding {
		start, bytes = torchAOHeader, bytes/8*int(h.Bits)
	}
	s.add(inData, start+id*bytes, bytes)
	s.row(inScales, id, int(h.Groups())*h.ScaleDtype.Bytes())
	if h.ZeroKind != packing.ZeroNone {
		s.row(inZeros, id, int(h.Groups()))
	}
}

// torchAOHeader is the size of TorchAO's own header at the start of the data.
const torchAOHeader = 64

// lowbit adds a row of gq's own layout, or of the same behind TorchAO's header:
// blocks of 32 columns, each but the last followed by the records of the groups
// that end in it. Runs of L = kr/2 columns alternate between the rows.
func (s *spans) lowbit(h *packing.Header, id int) {
	bits, nr, L := int(h.Bits), int(h.Tile.NR), int(h.Tile.KR)/2
	cols, group, size := int(h.Cols), groupOf(h), h.ScaleDtype.Bytes()
	at, r := panelOf(h, id)
	pairs := nr * L / 16 // of lanes, for both halves of 32 columns
	for k, g := 0, 0; k < cols; k += 32 {
		for unit := range nr / 4 { // 4 pairs of lanes in each
			lanes := 0 // of this row
			for pair := 4 * unit; pair < 4*unit+4; pair++ {
				if pair%pairs == r*L/16 {
					lanes |= 3 << (2 * (pair % 4))
				}
			}
			s.planes(at, bits, lanes, r*L%16, L)
			at += 16 * bits
		}
		for ; g < int(h.Groups()) && min((g+1)*group, cols) <= k+32; g++ {
			s.add(inData, at+size*r, size)
			at += size * nr
			if h.ZeroKind == packing.ZeroInt8 {
				s.add(inData, at+r, 1)
				at += nr
			}
		}
	}
}

// torchAOLinear adds a row of TorchAO's type 1: of each group its codes, 16
// columns of 8 rows a unit, then 8 scales, sums and zero points of 4 bytes, of
// which last one byte counts.
func (s *spans) torchAOLinear(h *packing.Header, id int) {
	const nr = 8
	bits, group := int(h.Bits), groupOf(h)
	at, r := panelOf(h, id)
	for range h.Groups() {
		for range group / 16 {
			s.planes(at, bits, 0x11<<(r/2), 8*(r%2), 8)
			at += 16 * bits
		}
		s.add(inData, at+4*r, 4)
		at += 2 * 4 * nr
		if h.ZeroKind == packing.ZeroInt8 {
			s.add(inData, at+4*r, 1)
			at += 4 * nr
		}
	}
}

// planes adds what a unit of 128 codes at start holds of some lanes, a bit each,
// at n positions from the first one.
func (s *spans) planes(start, bits, lanes, first, n int) {
	used := uint8(0)
	for lane := range 8 {
		if lanes>>lane&1 != 0 {
			used |= lanePlanes()[bits][lane]
		}
	}
	for p := range bits {
		if used>>p&1 != 0 {
			s.add(inData, start+16*p+first, n)
		}
	}
}

// lanePlanes says which planes of a unit of 128 codes hold bits of a lane of 16,
// by bits and lane: those that change when all bits of the lane's codes do.
var lanePlanes = sync.OnceValue(func() *[9][8]uint8 {
	var table [9][8]uint8
	for bits := 1; bits <= 8; bits++ {
		zeros, packed := make([]byte, 16*bits), make([]byte, 16*bits)
		packing.PackUnit(bits, 128, zeros, make([]int8, 128))
		for lane := range 8 {
			var codes [128]int8
			for i := range 16 {
				codes[16*lane+i] = -1
			}
			packing.PackUnit(bits, 128, packed, codes[:])
			for p := range bits {
				if packed[16*p] != zeros[16*p] {
					table[bits][lane] |= 1 << p
				}
			}
		}
	}
	return &table
})

// kleidiAI adds a row of one of KleidiAI's layouts. Of each group, a row's codes
// are a stream of bytes that is cut into runs, which alternate between the rows.
func (s *spans) kleidiAI(h *packing.Header, id int) {
	nr, run := int(h.Tile.NR), int(h.Tile.KR)/int(h.Tile.SR)
	at, r := panelOf(h, id)
	codes := func(cols int) { // of a group
		stream := cols * int(h.Bits) / 8
		for o := 0; o < stream; o += run {
			s.add(inData, at+nr*o+run*r, run)
		}
		at += nr * stream
	}
	numbers := func(size int) { // one of each row
		s.add(inData, at+size*r, size)
		at += size * nr
	}
	switch h.Layout {
	case packing.LayoutQSI4C32PF16: // scales, codes
		for range h.Groups() {
			numbers(2)
			codes(groupOf(h))
		}
	case packing.LayoutQAI4C32P: // codes, zero points, scales
		for range h.Groups() {
			codes(groupOf(h))
			numbers(4)
			numbers(4)
		}
	default: // a scale per row: codes, sums, scales
		codes((int(h.Cols) + 31) / 32 * 32)
		at += 4 * nr
		numbers(4)
	}
}

// groupOf is the number of columns of all groups but perhaps the last.
func groupOf(h *packing.Header) int {
	if h.Group == 0 || h.Group > h.Cols {
		return int(h.Cols)
	}
	return int(h.Group)
}

// panelOf finds the panel of a row: where in the data it starts, and which of its
// rows that is. All panels have the same size.
func panelOf(h *packing.Header, id int) (start, r int) {
	if h.Layout.IsTorchAO() {
		start = torchAOHeader
	}
	nr := int(h.Tile.NR)
	data, _ := h.DataSize() // New has checked it
	panels := (int(h.Rows)-1)/nr + 1
	return start + id/nr*((int(data)-start)/panels), id % nr
}
