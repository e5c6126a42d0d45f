package torchao

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/packing"
)

// HeaderSize is the size in bytes of TorchAO's header: 16 int32.
const HeaderSize = 64

// magic is the first int32 of every header.
const magic = 6712

// maxWeights bounds rows x columns of types 4 and 5, and all groups of type 5:
// TorchAO counts them in an int32.
const maxWeights = math.MaxInt32

// Type is TorchAO's number of a packed-weights type.
type Type int32

// The types.
const (
	TypeLinear       Type = 1 // "universal"
	TypeEmbedding    Type = 2
	TypeKleidiAI     Type = 3
	TypeLUT          Type = 4
	TypeGroupwiseLUT Type = 5
)

// String gives "linear (type 1)" and so on.
func (t Type) String() string {
	names := []string{"unknown", "linear", "embedding", "kleidiai", "lut", "groupwise-lut"}
	name := names[0]
	if t >= 0 && int(t) < len(names) {
		name = names[t]
	}
	return fmt.Sprintf("%s (type %d)", name, int32(t))
}

// The tiles that TorchAO ships kernels for.
var (
	linearTile    = packing.Tile{NR: 8, KR: 16, SR: 2}
	groupwiseTile = packing.Tile{NR: 4, KR: 32, SR: 8}
	kleidiTiles   = []packing.Tile{{NR: 8, KR: 16, SR: 2}, {NR: 8, KR: 8, SR: 2}}
)

// An embedding's version of its layout and the smallest and largest unit of
// its bit planes; TorchAO knows no others.
const (
	embeddingVersion  = 1
	embeddingMinChunk = 32
	embeddingMaxChunk = 128
)

// Header is TorchAO's header. Which fields a type has, the comments say; the
// others are zero.
type Header struct {
	Type       Type
	Bits       int          // bits of a code: 1-8, 4 for type 3, 1-4 for types 4 and 5
	Zeros      bool         // zero points in the buffer: type 1
	Scales     bool         // scales in the buffer: type 5
	Bias       bool         // bias in the buffer: types 1, 3, 4, 5
	ScaleGroup int          // columns that share a scale: type 5
	TableGroup int          // weights, row by row, that share a table: type 5
	Tile       packing.Tile // types 1, 3, 4, 5
}

// words is h as TorchAO stores it.
func (h Header) words() (w [HeaderSize / 4]int32) {
	w[0], w[1] = magic, int32(h.Type)
	var params []int
	nr, kr, sr := int(h.Tile.NR), int(h.Tile.KR), int(h.Tile.SR)
	switch h.Type {
	case TypeEmbedding:
		params = []int{embeddingVersion, h.Bits, embeddingMinChunk, embeddingMaxChunk}
	case TypeGroupwiseLUT:
		params = []int{h.Bits, h.ScaleGroup, h.TableGroup, boolInt(h.Scales), boolInt(h.Bias), nr, kr, sr}
	default:
		params = []int{h.Bits, boolInt(h.Zeros), boolInt(h.Bias), nr, kr, sr}
	}
	for i, p := range params {
		w[2+i] = int32(p)
	}
	return w
}

// headerOf reads from w the fields of its type. What words would not give back
// is for the caller to find.
func headerOf(w [HeaderSize / 4]int32) Header {
	tile := func(i int) packing.Tile { return packing.Tile{NR: uint8(w[i]), KR: uint8(w[i+1]), SR: uint8(w[i+2])} }
	h := Header{Type: Type(w[1])}
	switch h.Type {
	case TypeEmbedding:
		h.Bits = int(w[3])
	case TypeGroupwiseLUT:
		h.Bits, h.ScaleGroup, h.TableGroup = int(w[2]), int(w[3]), int(w[4])
		h.Scales, h.Bias, h.Tile = w[5] != 0, w[6] != 0, tile(7)
	default:
		h.Bits, h.Zeros, h.Bias, h.Tile = int(w[2]), w[3] != 0, w[4] != 0, tile(5)
	}
	return h
}

// offsetOf is where the header of a type has a field that Validate names.
func offsetOf(t Type, field string) int64 {
	switch {
	case field == "bits" && t != TypeEmbedding:
		return 4 * 2
	case field == "table group" || field == "bias":
		return 4 * 4
	}
	return 4 * 3
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Validate reports the first field that TorchAO's types cannot have: as
// *UnsupportedError a type or tile that TorchAO ships nothing for, as
// *InputError the rest.
func (h Header) Validate() error {
	minBits, maxBits, tiles := 1, 8, []packing.Tile{linearTile}
	switch h.Type {
	case TypeLinear:
	case TypeEmbedding:
		tiles = []packing.Tile{{}}
	case TypeKleidiAI:
		minBits, maxBits, tiles = 4, 4, kleidiTiles
	case TypeLUT:
		maxBits = 4
	case TypeGroupwiseLUT:
		maxBits, tiles = 4, []packing.Tile{groupwiseTile}
	default:
		return &UnsupportedError{"type", fmt.Sprintf("%d, this program knows 1 to 5", int32(h.Type))}
	}
	switch {
	case h.Bits < minBits || h.Bits > maxBits:
		return inputError("bits", -1, "%d, %s has %d to %d", h.Bits, h.Type, minBits, maxBits)
	case h.Zeros && h.Type != TypeLinear:
		return inputError("zeros", -1, "%s has no zero points", h.Type)
	case h.Bias && h.Type == TypeEmbedding:
		return inputError("bias", -1, "%s has no bias", h.Type)
	case !slices.Contains(tiles, h.Tile):
		return &UnsupportedError{"tile", fmt.Sprintf("%s of %s, TorchAO has kernels for %v", h.Tile, h.Type, tiles)}
	}
	if h.Type != TypeGroupwiseLUT {
		if h.Scales || h.ScaleGroup != 0 || h.TableGroup != 0 {
			return inputError("scale group", -1, "only %s has scales and groups in its header", TypeGroupwiseLUT)
		}
		return nil
	}
	switch {
	case h.ScaleGroup < 32 || h.ScaleGroup%32 != 0 || h.ScaleGroup > maxWeights:
		return inputError("scale group", -1, "%d, want a multiple of 32", h.ScaleGroup)
	case h.TableGroup < h.ScaleGroup || h.TableGroup%h.ScaleGroup != 0 || h.TableGroup > maxWeights:
		return inputError("table group", -1, "%d, want a multiple of the scale group, %d", h.TableGroup, h.ScaleGroup)
	}
	return nil
}

// Append appends the HeaderSize bytes of h to dst. It panics if h is not valid:
// that is an error of the program, not of its input.
func (h Header) Append(dst []byte) []byte {
	if err := h.Validate(); err != nil {
		panic(err)
	}
	for _, w := range h.words() {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(w))
	}
	return dst
}

// ParseHeader reads the header at the start of b and validates it. It fails
// with *FormatError (malformed) or *UnsupportedError (a type, version or tile
// that this package does not know). What it accepts, Append reproduces byte for
// byte.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, formatError(int64(len(b)), "the header is cut off, it has %d bytes", HeaderSize)
	}
	var w [HeaderSize / 4]int32
	for i := range w {
		w[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	if w[0] != magic {
		return Header{}, formatError(0, "%d, want TorchAO's magic number %d", w[0], magic)
	}
	h := headerOf(w)
	if h.Type == TypeEmbedding && w[2] != embeddingVersion {
		return Header{}, &UnsupportedError{"version", fmt.Sprintf("embedding version %d, this program reads %d", w[2], embeddingVersion)}
	}
	if err := h.Validate(); err != nil {
		if input, ok := err.(*InputError); ok {
			return Header{}, formatError(offsetOf(h.Type, input.Field), "%s: %s", input.Field, input.Msg)
		}
		return Header{}, err
	}
	for i, want := range h.words() {
		if w[i] != want {
			return Header{}, formatError(int64(4*i), "%d, want %d in a header of %s", w[i], want, h.Type)
		}
	}
	return h, nil
}
