package packing

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// HeaderSize is the size in bytes of the packed header before each payload.
const HeaderSize = 64

// headerVersion is the only version of the packed header that this package reads and writes.
// Version 1 is the first version.
const headerVersion = 1

// maxDataSize bounds a payload's bytes: sums of a few sizes and offsets cannot overflow an int64.
const maxDataSize = 1 << 62

// Offsets of the header's fields; all integers are little-endian.
const (
	offMagic      = 0  // "GQPK"
	offVersion    = 4  // uint16
	offLayout     = 6  // uint8, as all up to offDtype
	offFlags      = 7  //
	offBits       = 8  //
	offGrid       = 9  //
	offScaleDtype = 10 //
	offZeroKind   = 11 //
	offTile       = 12 // nr, kr, sr
	offDtype      = 15 //
	offRows       = 16 // uint64, as all up to offDataSize
	offCols       = 24 //
	offGroup      = 32 //
	offDataSize   = 40 //
	offReserved   = 48 // 12 bytes, zero
	offCRC        = 60 // uint32, CRC32C of bytes 0..59
)

var headerMagic = [4]byte{'G', 'Q', 'P', 'K'}

// Header describes the bytes of a payload completely: the header and the data behind it suffice to
// compute every weight.
//
// LayoutPlain uses Dtype, Rows and Cols; all other fields are zero. LayoutBlocks uses Bits, Group,
// and Dtype for ggml's number of the type. The other layouts use all fields but Dtype; Validate
// states the values that each layout accepts. The order of the fields is the file's.
type Header struct {
	Layout     Layout
	Flags      Flags
	Bits       uint8 // bits of a code, 1 to 8
	Grid       Grid
	ScaleDtype ScaleDtype
	ZeroKind   ZeroKind
	Tile       Tile
	Dtype      Dtype  // element type of LayoutPlain
	Rows       uint64 // outputs
	Cols       uint64 // inputs, K
	Group      uint64 // weights of a row that share a scale; 0: the whole row
}

// HeaderError reports a malformed packed header, or fields that contradict each other.
type HeaderError struct {
	Field  string // "magic", "bits", "data size", ...
	Offset int    // of the field in the header, in bytes
	Msg    string
}

func (e *HeaderError) Error() string {
	return fmt.Sprintf("packed header: %s (byte %d): %s", e.Field, e.Offset, e.Msg)
}

// UnsupportedError reports a well-formed packed header that needs a newer version of this program.
type UnsupportedError struct {
	Field  string
	Offset int
	Msg    string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("packed header: %s (byte %d): %s", e.Field, e.Offset, e.Msg)
}

// PlainHeader describes rows x cols elements of d, row-major.
func PlainHeader(d Dtype, rows, cols uint64) Header {
	return Header{Layout: LayoutPlain, Dtype: d, Rows: rows, Cols: cols}
}

// Canonical returns h with FlagQSI4C32P set exactly if IsQSI4C32P is true, as Validate requires.
func (h Header) Canonical() Header {
	h.Flags &^= FlagQSI4C32P
	if h.IsQSI4C32P() {
		h.Flags |= FlagQSI4C32P
	}
	return h
}

// IsQSI4C32P reports whether the payload's bytes are KleidiAI's qsi4c32p with BF16 scales: 4 bits,
// symmetric, K and the group multiples of 32, no short group.
func (h Header) IsQSI4C32P() bool {
	if h.Layout != LayoutLowbit || h.Bits != 4 || h.Grid != GridInteger ||
		h.ZeroKind != ZeroNone || h.ScaleDtype != ScaleBF16 || h.Cols%32 != 0 {
		return false
	}
	return h.Group == 0 || h.Group%32 == 0 && h.Cols%h.Group == 0
}

// Validate reports the first wrong field, as *HeaderError or *UnsupportedError.
func (h Header) Validate() error {
	if err := h.validateFields(); err != nil {
		return err
	}
	_, err := h.DataSize()
	return err
}

func (h Header) validateFields() error {
	f := h.Layout.foreign()
	switch {
	case h.Layout == LayoutPlain:
		return h.validatePlain()
	case h.Layout == LayoutBlocks:
		if h.Rows == 0 || h.Cols == 0 || h.Group == 0 || h.Bits < 1 || h.Bits > 8 {
			return &HeaderError{"rows", offRows, fmt.Sprintf("%d x %d weights of blocks, %d bits, groups of %d", h.Rows, h.Cols, h.Bits, h.Group)}
		}
		return nil
	case h.Layout == 0:
		return &HeaderError{"layout", offLayout, "layout 0 does not exist"}
	case h.Layout != LayoutLowbit && h.Layout != LayoutCodes && f == nil:
		return unknownLayout(h.Layout)
	}
	if err := h.validateCodes(); err != nil {
		return err
	}
	if f != nil {
		return h.validateForeign(f)
	}
	return h.validateOwn()
}

// validateCodes finds numbers in the fields of a quantized payload that this version does not know.
// A newer version may know the numbers.
func (h Header) validateCodes() error {
	newer := func(field string, off int, code uint8) error {
		return &UnsupportedError{field, off, fmt.Sprintf("%s %d is not known to this version", field, code)}
	}
	switch {
	case h.Flags&^flagsKnown != 0:
		return &UnsupportedError{"flags", offFlags, fmt.Sprintf("flags %#x are not known to this version", uint8(h.Flags&^flagsKnown))}
	case h.Grid > GridHalfStep:
		return newer("grid", offGrid, uint8(h.Grid))
	case h.ScaleDtype >= scaleDtypeLimit:
		return newer("scale dtype", offScaleDtype, uint8(h.ScaleDtype))
	case h.ZeroKind > ZeroFraction:
		return newer("zero kind", offZeroKind, uint8(h.ZeroKind))
	}
	tiles := h.Layout.Tiles()
	switch {
	case tiles == nil && h.Tile != Tile{}:
		return &UnsupportedError{"tile", offTile, fmt.Sprintf("%s holds rows without a tile, not %s", h.Layout, h.Tile)}
	case tiles != nil && !slices.Contains(tiles, h.Tile):
		return &UnsupportedError{"tile", offTile, fmt.Sprintf("%s holds tiles of %s, not %q", h.Layout, orList(tiles), h.Tile)}
	}
	return nil
}

func (h Header) validatePlain() error {
	if want := PlainHeader(h.Dtype, h.Rows, h.Cols); h != want {
		return &HeaderError{"layout", offLayout, "a plain payload has no flags, bits, grid, scales, zero points, tile or group"}
	}
	if h.Dtype == DtypeNone {
		return &HeaderError{"dtype", offDtype, "a plain payload needs an element type"}
	}
	if h.Dtype >= dtypeLimit {
		return &UnsupportedError{"dtype", offDtype, fmt.Sprintf("element type %d is not known to this version", uint8(h.Dtype))}
	}
	return nil
}

func (h Header) validateOwn() error {
	fail := func(field string, off int, format string, args ...any) error {
		return &HeaderError{field, off, fmt.Sprintf(format, args...)}
	}
	switch {
	case h.Bits < 1 || h.Bits > 8:
		return fail("bits", offBits, "%d bits a code, want 1 to 8", h.Bits)
	case h.Grid == GridHalfStep && h.Bits > 2:
		return fail("grid", offGrid, "the half-step grid is for 1 and 2 bits, not %d", h.Bits)
	case h.Grid == GridHalfStep && h.ZeroKind != ZeroNone:
		return fail("grid", offGrid, "the half-step grid has no zero points")
	case h.ScaleDtype == ScaleNone:
		return fail("scale dtype", offScaleDtype, "scale dtype %d, want bf16 (1), f16 (2) or f32 (3)", uint8(h.ScaleDtype))
	case h.ZeroKind == ZeroF32:
		return fail("zero kind", offZeroKind, "zero kind %d, want none (0), int8 (1) or fraction (3)", uint8(h.ZeroKind))
	case h.ZeroKind == ZeroFraction && h.Bits == 8:
		return fail("zero kind", offZeroKind, "fractional zero points are for 1 to 7 bits: at 8 bits they are zero kind int8 (1)")
	case h.Layout == LayoutCodes && h.Flags&FlagBias != 0:
		return fail("flags", offFlags, "layout codes holds no bias")
	case h.Dtype != DtypeNone:
		return fail("dtype", offDtype, "a payload of codes has no element type, this header has %d", uint8(h.Dtype))
	case h.Rows == 0 || h.Cols == 0:
		return fail("rows", offRows, "%d x %d weights: a payload of codes cannot be empty", h.Rows, h.Cols)
	case h.Group%16 != 0:
		return fail("group", offGroup, "group of %d, want a multiple of 16, or 0 for one scale per row", h.Group)
	case h.Flags&FlagQSI4C32P != 0 && !h.IsQSI4C32P():
		return fail("flags", offFlags, "flagged as qsi4c32p, but these fields are not qsi4c32p")
	case h.Flags&FlagQSI4C32P == 0 && h.IsQSI4C32P():
		return fail("flags", offFlags, "these fields are qsi4c32p, but the qsi4c32p flag is not set")
	}
	return nil
}

// Groups is the number of groups in a row; 0 for LayoutPlain.
func (h Header) Groups() uint64 {
	switch {
	case h.Layout == LayoutPlain || h.Cols == 0:
		return 0
	case h.Group == 0 || h.Group >= h.Cols:
		return 1
	}
	return (h.Cols-1)/h.Group + 1
}

// ZeroShift is the number of bits by which the unit of the payload's int8 zero points is below the
// unit of codes: 8-Bits for ZeroFraction, 0 otherwise.
func (h Header) ZeroShift() int {
	if h.ZeroKind == ZeroFraction {
		return 8 - int(h.Bits)
	}
	return 0
}

// ZeroUnit is the unit of the payload's int8 zero points: 2^-ZeroShift. The zero point of a group
// is the stored number times this unit, an exact float32.
func (h Header) ZeroUnit() float32 { return 1 / float32(int(1)<<h.ZeroShift()) }

// DataSize is the number of bytes behind the header: Rows*Cols*Bits/8 for LayoutPlain, TorchAO's
// own header and the panels for the others; 0 for LayoutBlocks, with data in another file. The
// companions of LayoutTorchAOEmbedding are payloads of their own and not counted. A size that is
// not a whole number of bytes or exceeds 2^62 is a *HeaderError.
func (h Header) DataSize() (int64, error) {
	if h.Layout == LayoutPlain {
		n := newChecked(h.Rows).mul(h.Cols)
		size, tail := newChecked(n.v/8).mul(uint64(h.Dtype.Bits())), n.v%8*uint64(h.Dtype.Bits())
		if size = size.add(tail / 8); n.overflow || size.overflow || size.v > maxDataSize {
			return 0, h.tooLarge()
		}
		if tail%8 != 0 {
			return 0, &HeaderError{"cols", offCols, fmt.Sprintf("%d x %d elements of %s are not a whole number of bytes", h.Rows, h.Cols, h.Dtype)}
		}
		return int64(size.v), nil
	}
	if h.Layout == LayoutBlocks {
		return 0, nil
	}
	f := h.Layout.foreign()
	rows := h.Layout == LayoutCodes || h.Layout == LayoutTorchAOEmbedding // without panels
	if h.Layout != LayoutLowbit && h.Layout != LayoutCodes && f == nil || h.Tile.NR == 0 && !rows {
		return 0, &HeaderError{"layout", offLayout, "size unknown"}
	}
	prefix, nr, row := uint64(0), uint64(max(h.Tile.NR, 1)), h.lowbitRowSize()
	switch {
	case h.Layout == LayoutCodes:
		row = newChecked(h.Cols)
	case f != nil:
		prefix, row = f.prefix, f.rowSize(h)
	}
	n := newChecked(h.Rows / nr)
	if h.Rows%nr != 0 {
		n = n.add(1)
	}
	if n = n.mul(nr).mulChecked(row).add(prefix); n.overflow || n.v > maxDataSize {
		return 0, h.tooLarge()
	}
	return int64(n.v), nil
}

// lowbitRowSize is the number of bytes that a row of LayoutLowbit takes in its panel: Bits*K32/8 +
// G*(scale [+ zero]) + 4 + 4, where K32 is Cols rounded up to 32.
func (h Header) lowbitRowSize() checked {
	record := uint64(h.ScaleDtype.Bytes())
	if h.ZeroKind.IsInt8() {
		record++
	}
	groups := newChecked(h.Groups()).mul(record)
	return h.blocks32().mul(4 * uint64(h.Bits)).addChecked(groups).add(8)
}

func (h Header) blocks32() checked {
	blocks := newChecked(h.Cols / 32)
	if h.Cols%32 != 0 {
		blocks = blocks.add(1)
	}
	return blocks
}

func (h Header) tooLarge() error {
	return &HeaderError{"rows", offRows, fmt.Sprintf("%d x %d weights need more than 2^62 bytes", h.Rows, h.Cols)}
}

// BitsPerWeight is the size of weights' payloads in bits divided by the number of weights, or 0 if
// there are none. A payload counts whole: codes, scales, zero points, sums, padding and the 64-byte
// header, in every layout that a tensor is stored in. "Bits per quantized weight" is this figure
// over all quantized tensors.
func BitsPerWeight(payloadBytes, weights int64) float64 {
	if weights == 0 {
		return 0
	}
	return float64(payloadBytes) * 8 / float64(weights)
}

// LayoutOf is the layout in the packed header b, of HeaderSize bytes, maybe unknown to this
// version.
func LayoutOf(b []byte) Layout { return Layout(b[offLayout]) }

// DataSizeOf is the number of data bytes that the packed header b, of HeaderSize bytes, states. b
// may be of a newer version or of an unknown layout.
func DataSizeOf(b []byte) uint64 { return binary.LittleEndian.Uint64(b[offDataSize:]) }

// Append appends the HeaderSize bytes of h to dst. It panics if h is not valid.
func (h Header) Append(dst []byte) []byte {
	if err := h.Validate(); err != nil {
		panic(err)
	}
	size, _ := h.DataSize() // checked by Validate
	var b [HeaderSize]byte
	le := binary.LittleEndian
	copy(b[offMagic:], headerMagic[:])
	le.PutUint16(b[offVersion:], headerVersion)
	binary.Encode(b[offLayout:], le, h)
	le.PutUint64(b[offDataSize:], uint64(size))
	le.PutUint32(b[offCRC:], crc32c.Checksum(b[:offCRC]))
	return append(dst, b[:]...)
}

func unknownLayout(l Layout) error {
	return &UnsupportedError{"layout", offLayout, fmt.Sprintf("layout %d is not known to this version", uint8(l))}
}

// ParseHeader reads the packed header at the start of b and validates it. The error is a
// *HeaderError (malformed) or an *UnsupportedError (newer). Append reproduces every header that
// ParseHeader accepts, byte for byte.
func ParseHeader(b []byte) (Header, error) { return parseHeader(b, false) }

// Decode is ParseHeader in memory, where payloads of LayoutBlocks exist.
func (h *Header) Decode(b []byte) (err error) {
	*h, err = parseHeader(b, true)
	return err
}

func parseHeader(b []byte, memory bool) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, &HeaderError{"size", len(b), fmt.Sprintf("%d bytes, want %d", len(b), HeaderSize)}
	}
	le := binary.LittleEndian
	if [4]byte(b[offMagic:]) != headerMagic {
		return Header{}, &HeaderError{"magic", offMagic, fmt.Sprintf("%q, want %q", b[offMagic:offMagic+4], headerMagic[:])}
	}
	if want, got := crc32c.Checksum(b[:offCRC]), le.Uint32(b[offCRC:]); want != got {
		return Header{}, &HeaderError{"checksum", offCRC, fmt.Sprintf("%#08x stored, %#08x computed: the header is damaged", got, want)}
	}
	if v := le.Uint16(b[offVersion:]); v == 0 {
		return Header{}, &HeaderError{"version", offVersion, "version 0 does not exist"}
	} else if v != headerVersion {
		return Header{}, &UnsupportedError{"version", offVersion, fmt.Sprintf("version %d, this program reads %d", v, headerVersion)}
	}
	for i, c := range b[offReserved:offCRC] {
		if c != 0 {
			return Header{}, &HeaderError{"reserved", offReserved + i, fmt.Sprintf("%#02x, want 0", c)}
		}
	}
	var h Header
	binary.Decode(b[offLayout:], le, &h)
	if h.Layout == LayoutBlocks && !memory {
		return Header{}, unknownLayout(h.Layout)
	}
	if err := h.Validate(); err != nil {
		return Header{}, err
	}
	size, _ := h.DataSize() // checked by Validate
	if got := le.Uint64(b[offDataSize:]); got != uint64(size) {
		return Header{}, &HeaderError{"data size", offDataSize, fmt.Sprintf("%d bytes stored, the fields need %d", got, size)}
	}
	return h, nil
}

// checked is a uint64 that remembers an overflow.
type checked struct {
	v        uint64
	overflow bool
}

func newChecked(v uint64) checked { return checked{v: v} }

func (a checked) mul(b uint64) checked {
	hi, lo := bits.Mul64(a.v, b)
	return checked{lo, a.overflow || hi != 0}
}

func (a checked) add(b uint64) checked {
	sum, carry := bits.Add64(a.v, b, 0)
	return checked{sum, a.overflow || carry != 0}
}

func (a checked) mulChecked(b checked) checked {
	product := a.mul(b.v)
	product.overflow = product.overflow || b.overflow
	return product
}

func (a checked) addChecked(b checked) checked {
	sum := a.add(b.v)
	sum.overflow = sum.overflow || b.overflow
	return sum
}
