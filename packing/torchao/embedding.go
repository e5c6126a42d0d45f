package torchao

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/packing"
)

// Embedding packs and reads one packing.LayoutTorchAOEmbedding payload, TorchAO's type 2. Each
// row's codes are packed on their own: as many units of 128 as fit, then one of 64 and one of 32
// where they fit. A panel is a row.
//
// Scales (float32) and zero points (int8, stored even if all are 0) are in two companions,
// row-major: ScalesBytes() and ZerosBytes() bytes. PackPanel and UnpackPanel ignore the scales and
// zero points of a panel; PackScales and PackZeros write them. Row and DequantizeRow need the
// companions to read anything but codes; WithCompanions attaches them.
//
// An Embedding is immutable; many goroutines may use it at once. It implements packing.Packer,
// which states when methods panic.
type Embedding struct {
	h        packing.Header
	planes   *bitPlanes
	prefix   []byte
	bits     int
	rows     int
	k        int // columns
	group    int // columns of a group
	groups   int
	rowBytes int
	scales   []byte // the companions, or nil
	zeros    []byte
}

// NewEmbedding prepares packing and reading of a payload with header h. It fails like h.Validate,
// and with *UnsupportedError for another layout and for a payload that this machine cannot address.
func NewEmbedding(h packing.Header) (*Embedding, error) {
	size, err := validate(h, packing.LayoutTorchAOEmbedding)
	if err != nil {
		return nil, err
	}
	e := &Embedding{
		h: h, planes: planesOf(int(h.Bits)), bits: int(h.Bits), rows: int(h.Rows), k: int(h.Cols), groups: int(h.Groups()),
		prefix: embeddingHeader(h.Bits),
	}
	e.group = e.k / e.groups
	e.rowBytes = e.k / 8 * e.bits
	if want := int64(HeaderSize) + int64(e.rows)*int64(e.rowBytes); want != size {
		panic(fmt.Sprintf("torchao: %d bytes by the packed header, %d by the layout", size, want))
	}
	return e, nil
}

// Header returns the header that NewEmbedding got.
func (e *Embedding) Header() packing.Header { return e.h }

// Prefix is TorchAO's header.
func (e *Embedding) Prefix() []byte { return e.prefix }

// Panels is the number of rows.
func (e *Embedding) Panels() int { return e.rows }

// PanelBytes is the size of a row.
func (e *Embedding) PanelBytes() int { return e.rowBytes }

// PanelRows is 1.
func (e *Embedding) PanelRows(int) int { return 1 }

// PackedCols is the number of columns.
func (e *Embedding) PackedCols() int { return e.k }

// Groups is the number of groups in a row.
func (e *Embedding) Groups() int { return e.groups }

// NewPanel returns a panel of zeros for one row, with scales and zero points.
func (e *Embedding) NewPanel() *packing.Panel {
	return &packing.Panel{Rows: 1, Codes: make([]int8, e.k), Scales: make([]float32, e.groups), Zeros: make([]int8, e.groups)}
}

func (e *Embedding) checkArgs(packed []byte, p *packing.Panel) {
	if len(packed) != e.rowBytes || p.Rows != 1 || len(p.Codes) != e.k {
		panic(fmt.Sprintf("torchao: %d bytes for a row of %d, a panel of %d rows and %d codes, want 1 and %d",
			len(packed), e.rowBytes, p.Rows, len(p.Codes), e.k))
	}
}

// PackPanel packs the codes of a row into dst, which has PanelBytes() bytes. It does not check
// codes and stores their low bits.
//
// At K 2048 it takes 0.06 (4 bits), 0.01 (8 bits) and 0.22 to 0.41 ns per weight (others) on one
// core of an AMD EPYC of Zen 5.
func (e *Embedding) PackPanel(dst []byte, p *packing.Panel) {
	e.checkArgs(dst, p)
	codes, unitBytes := codeBytes(p.Codes), 16*e.bits
	switch e.bits {
	case 4: // the same in units of any length: columns i and i+16 share a byte
		for ; len(codes) >= 32; codes, dst = codes[32:], dst[16:] {
			x, out := (*[32]byte)(codes), (*[16]byte)(dst)
			putWord(out[:], nibbles(word(x[:], 0), word(x[:], 16)))
			putWord(out[8:], nibbles(word(x[:], 8), word(x[:], 24)))
		}
	case 8:
		copy(dst, codes)
		return
	}
	for ; len(codes) >= unitCodes; codes, dst = codes[unitCodes:], dst[unitBytes:] {
		unit := (*[unitCodes]byte)(codes)
		for c := 0; c < 16; c += 8 {
			var x [8]uint64
			for lane := range x {
				x[lane] = e.planes.stored(word(unit[:], 16*lane+c))
			}
			e.planes.pack(dst[c:], &x)
		}
	}
	rest := p.Codes[e.k-len(codes):]
	for unit := unitCodes / 2; unit >= 32; unit /= 2 {
		if len(rest) >= unit {
			packing.PackUnit(e.bits, unit, dst[:unit/8*e.bits], rest[:unit])
			rest, dst = rest[unit:], dst[unit/8*e.bits:]
		}
	}
}

// UnpackPanel unpacks the codes of a row. It does not touch p.Scales and
// p.Zeros.
func (e *Embedding) UnpackPanel(p *packing.Panel, src []byte) {
	p.Rows = 1
	e.checkArgs(src, p)
	e.unpack(p.Codes, src)
}

// unpack unpacks a row.
func (e *Embedding) unpack(codes []int8, src []byte) {
	for len(codes) > 0 {
		n := e.unpackUnit(codes, src)
		codes, src = codes[n:], src[n/8*e.bits:]
	}
}

// unpackUnit unpacks the first unit of src, the rest of a row, to the start of codes. It returns
// the unit's number of codes.
func (e *Embedding) unpackUnit(codes []int8, src []byte) int {
	if len(codes) < unitCodes {
		unit := 32
		if len(codes) >= 64 {
			unit = 64
		}
		packing.UnpackUnit(e.bits, unit, codes[:unit], src[:unit/8*e.bits])
		return unit
	}
	dst := (*[unitCodes]byte)(codeBytes(codes))
	for lane := range 8 {
		putWord(dst[16*lane:], e.planes.lane(src, lane))
		putWord(dst[16*lane+8:], e.planes.lane(src[8:], lane))
	}
	return unitCodes
}

// CheckPanel accepts any bytes: every byte is a valid packed code.
func (e *Embedding) CheckPanel(i int, src []byte) error {
	if i < 0 || i >= e.rows || len(src) != e.rowBytes {
		panic(fmt.Sprintf("torchao: row %d of %d, %d bytes of %d", i, e.rows, len(src), e.rowBytes))
	}
	return nil
}

// ScalesBytes is the size of the companion of scales: 4 bytes a group.
func (e *Embedding) ScalesBytes() int64 { return 4 * e.ZerosBytes() }

// ZerosBytes is the size of the companion of zero points: a byte a group.
func (e *Embedding) ZerosBytes() int64 { return int64(e.rows) * int64(e.groups) }

// PackScales writes the scales of the panel, one row, into dst, which has 4*Groups() bytes. The
// scales of row r begin at byte 4*Groups()*r of the companion.
func (e *Embedding) PackScales(dst []byte, p *packing.Panel) {
	dst = dst[:4*e.groups]
	for g, s := range p.Scales[:e.groups] {
		binary.LittleEndian.PutUint32(dst[4*g:], math.Float32bits(s))
	}
}

// PackZeros writes the zero points of the panel, one row, into dst, which has Groups() bytes. The
// zero points of row r begin at byte Groups()*r of the companion.
func (e *Embedding) PackZeros(dst []byte, p *packing.Panel) {
	copy(dst[:e.groups], codeBytes(p.Zeros[:e.groups]))
}

// WithCompanions returns an Embedding that also reads scales and zero points from these companions,
// which must not change. It fails with *FormatError if a companion has the wrong size;
// CheckCompanions checks the values.
func (e *Embedding) WithCompanions(scales, zeros []byte) (*Embedding, error) {
	if want := e.ScalesBytes(); int64(len(scales)) != want {
		return nil, formatError(int64(len(scales)), "%d bytes of scales, want %d for %d rows of %d groups", len(scales), want, e.rows, e.groups)
	}
	if want := e.ZerosBytes(); int64(len(zeros)) != want {
		return nil, formatError(int64(len(zeros)), "%d bytes of zero points, want %d for %d rows of %d groups", len(zeros), want, e.rows, e.groups)
	}
	with := *e
	with.scales, with.zeros = scales, zeros
	return &with, nil
}

// CheckCompanions reports, as *FormatError with its offset in the companion, the first scale that
// is not a normal number, or not positive despite packing.FlagPositiveScales. Every byte is a valid
// zero point.
func (e *Embedding) CheckCompanions() error {
	e.needCompanions()
	for i := range e.rows * e.groups {
		scale := getFloat(e.scales[4*i:], 0)
		if msg := checkScale(scale, i/e.groups, i%e.groups, false, e.h.Flags&packing.FlagPositiveScales != 0); msg != "" {
			return formatError(4*int64(i), "%s", msg)
		}
	}
	return nil
}

func (e *Embedding) needCompanions() {
	if e.scales == nil {
		panic("torchao: an embedding's scales and zero points need WithCompanions")
	}
}

// rowOf returns the bytes of a row's codes.
func (e *Embedding) rowOf(data []byte, row int) []byte {
	if row < 0 || row >= e.rows {
		panic(fmt.Sprintf("torchao: row %d of %d", row, e.rows))
	}
	return data[HeaderSize+row*e.rowBytes:][:e.rowBytes]
}

// Row reads one row: K codes from data, G scales and G zero points from the companions. Any of the
// three may be nil. It panics if e has no companions and scales or zeros is not nil.
func (e *Embedding) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	src := e.rowOf(data, row)
	if codes != nil {
		e.unpack(codes[:e.k], src)
	}
	if scales == nil && zeros == nil {
		return
	}
	e.needCompanions()
	for g := range e.groups {
		if scales != nil {
			scales[g] = e.scale(row, g)
		}
		if zeros != nil {
			zeros[g] = e.zero(row, g)
		}
	}
}

func (e *Embedding) scale(row, g int) float32 { return getFloat(e.scales[4*(row*e.groups+g):], 0) }
func (e *Embedding) zero(row, g int) int8     { return int8(e.zeros[row*e.groups+g]) }

// DequantizeRow reads one row as K weights: float32(q - z) * scale, rounded
// once, as TorchAO's embedding does. It panics if e has no companions.
func (e *Embedding) DequantizeRow(dst []float32, data []byte, row int) {
	src, dst := e.rowOf(data, row), dst[:e.k]
	e.needCompanions()
	var buffer [unitCodes]int8
	scale, zero := float32(0), int32(0)
	for k, group := 0, 0; k < e.k; {
		codes := buffer[:min(unitCodes, e.k-k)]
		codes = codes[:e.unpackUnit(codes, src)]
		src = src[len(codes)/8*e.bits:]
		for len(codes) > 0 {
			if k == group*e.group {
				scale, zero = e.scale(row, group), int32(e.zero(row, group))
				group++
			}
			n := min(group*e.group-k, len(codes))
			run := dst[k:][:n]
			for i, q := range codes[:n] {
				run[i] = float32(float32(int32(q)-zero) * scale)
			}
			codes, k = codes[n:], k+n
		}
	}
}

// Bias is 0: the layout has none.
func (e *Embedding) Bias(data []byte, row int) float32 {
	e.rowOf(data, row)
	return 0
}
