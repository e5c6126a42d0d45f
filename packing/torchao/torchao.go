package torchao

import (
	"bytes"
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

// headerSize is the size in bytes of TorchAO's header: 16 int32.
const headerSize = 64

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
	b := make([]byte, headerSize)
	for i, w := range append([]int32{magic, number}, params...) {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(w))
	}
	return b
}

const ones = 0x0101010101010101

func word(codes []byte, at int) uint64 { return binary.LittleEndian.Uint64(codes[at:]) }

func putWord(dst []byte, w uint64) { binary.LittleEndian.PutUint64(dst, w) }

// kleidiAI is the [packing.Packer] of a packing.LayoutTorchAOKleidiAI payload, TorchAO's type 3:
// TorchAO's header, then packing.Lowbit in the form of KleidiAI's qsi4c32p with BF16 scales.
// TorchAO pads an odd number of rows with a row of codes -8 and scales and bias 0. Further rows of
// the last panel repeat the row before them, padding or not, as in KleidiAI's own packer.
//
// TorchAO gets float32 scales and drops the lower half of their bits. Choose codes against scales
// that were rounded to BF16 before: dropping bits then changes nothing.
type kleidiAI struct {
	*packing.Lowbit // the rows of the matrix without padding
	prefix          []byte
}

// newKleidiAI fails like packing.NewGeometry.
func newKleidiAI(h packing.Header) (*kleidiAI, error) {
	if h.Layout != packing.LayoutTorchAOKleidiAI {
		_, err := packing.NewGeometry(h, packing.LayoutTorchAOKleidiAI)
		return nil, err
	}
	lowbit, err := packing.NewLowbit(h)
	if err != nil {
		return nil, err
	}
	return &kleidiAI{lowbit, tiledHeader(typeKleidiAI, &h)}, nil
}

func (l *kleidiAI) Prefix() []byte { return l.prefix }

// PackPanel does not check that scales are BF16 numbers.
func (l *kleidiAI) PackPanel(dst []byte, p *packing.Panel) {
	l.Lowbit.PackPanel(dst, p)
	if p.Rows%2 != 0 {
		l.pad(dst, p.Rows)
	}
}

// pad writes TorchAO's padding to rows r and following of a panel: nibbles of -8, scale and sum 0.
func (l *kleidiAI) pad(panel []byte, r int) {
	const rows = 8 // of a panel, in both tiles
	L := int(l.Header().Tile.KR) / 2
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

// CheckPanel reports, as *packing.PanelError, the first defect of panel i of the payload, with
// bytes src: a defect that packing.Lowbit.CheckPanel finds, or padding that differs from TorchAO's.
func (l *kleidiAI) CheckPanel(i int, src []byte) error {
	rows := l.PanelRows(i)
	if rows%2 == 0 {
		return l.Lowbit.CheckPanel(i, src)
	}
	// The last panel of an odd number of rows: check with its last row repeated, then the padding.
	p, again := l.NewPanel(), make([]byte, len(src))
	l.UnpackPanel(p, src)
	p.Rows = rows
	l.Lowbit.PackPanel(again, p)
	if err := l.Lowbit.CheckPanel(i, again); err != nil {
		return err
	}
	l.pad(again, rows)
	if !bytes.Equal(again, src) {
		at := 0
		for again[at] == src[at] {
			at++
		}
		return l.PanelErrorf(i, at, "byte %d of the panel is %#02x; packing its codes, scales and biases gives %#02x", at, src[at], again[at])
	}
	return nil
}
