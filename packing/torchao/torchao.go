package torchao

import (
	"encoding/binary"

	"github.com/lowbit-go/gq/packing"
)

// New makes the Packer of TorchAO's layout h.Layout. The Packer of embeddings is an *Embedding.
func New(h packing.Header) (packing.Packer, error) {
	var p packing.Packer
	var err error
	switch h.Layout {
	case packing.LayoutTorchAOEmbedding:
		p, err = newEmbedding(h)
	case packing.LayoutTorchAOKleidiAI:
		p, err = newKleidiAI(h)
	default:
		p, err = newLinear(h)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// HeaderSize is the size in bytes of TorchAO's header: 16 int32.
const HeaderSize = 64

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

func embeddingHeader(bits uint8) []byte {
	return header(typeEmbedding, embeddingVersion, int32(bits), embeddingMinChunk, embeddingMaxChunk)
}

func header(number int32, params ...int32) []byte {
	b := make([]byte, HeaderSize)
	for i, w := range append([]int32{magic, number}, params...) {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(w))
	}
	return b
}
