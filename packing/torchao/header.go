package torchao

import (
	"encoding/binary"

	"github.com/lowbit-go/gq/packing"
)

// HeaderSize is the size in bytes of TorchAO's header: 16 int32.
const HeaderSize = 64

// magic is the first int32 of every header.
const magic = 6712

// TorchAO's numbers of the packed-weights types that a .gqf file can hold.
const (
	typeLinear    = 1 // "universal"
	typeEmbedding = 2
	typeKleidiAI  = 3
)

// The layout version that TorchAO writes in an embedding's header, and the smallest and largest
// unit of its bit planes; TorchAO knows no other values.
const (
	embeddingVersion  = 1
	embeddingMinChunk = 32
	embeddingMaxChunk = 128
)

// tiledHeader is the header of types 1 and 3.
func tiledHeader(number int32, h *packing.Header) []byte {
	zeros, bias := int32(0), int32(0)
	if h.ZeroKind != packing.ZeroNone {
		zeros = 1
	}
	if h.Flags&packing.FlagBias != 0 {
		bias = 1
	}
	return header(number, int32(h.Bits), zeros, bias, int32(h.Tile.NR), int32(h.Tile.KR), int32(h.Tile.SR))
}

// embeddingHeader is the header of type 2.
func embeddingHeader(bits uint8) []byte {
	return header(typeEmbedding, embeddingVersion, int32(bits), embeddingMinChunk, embeddingMaxChunk)
}

// header is the header of a type with these parameters, padded with zeros.
func header(number int32, params ...int32) []byte {
	b := make([]byte, HeaderSize)
	for i, w := range append([]int32{magic, number}, params...) {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(w))
	}
	return b
}
