package torchao

import (
	"encoding/binary"
	"math/bits"
	"sync"

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

// unitCodes is the number of codes of a unit of bit planes: 8 lanes of 16 positions, stored as b
// planes of 16 bytes. Package packing packs the shorter units at the end of an embedding's rows.
const unitCodes = 128

const ones = 0x0101010101010101

// field is a run of bits of a lane's stored codes that stays together in a plane, for 8 positions
// at once: plane |= RotateLeft64(lane & mask, rotate). No bit leaves its byte.
type field struct {
	lane   int
	plane  int
	mask   uint64
	rotate int
}

// bitPlanes packs and unpacks units of 128 codes, 8 positions in a uint64. A code q is stored as
// q&mask ^ half: q + 2^(b-1), or q itself at 8 bits.
type bitPlanes struct {
	bits    int
	mask    uint64
	half    uint64     // 2^(b-1) in each byte, 0 at 8 bits
	ofPlane [8][]field // the fields of each plane
	ofLane  [8][]field // the fields of each lane
}

func planesOf(bits int) *bitPlanes { return &planeTables()[bits] }

// planeTables finds the fields by packing single bits with packing.PackUnit.
var planeTables = sync.OnceValue(func() *[9]bitPlanes {
	var tables [9]bitPlanes
	for b := 1; b <= 8; b++ {
		t := &tables[b]
		t.bits, t.mask = b, ones*(1<<b-1)
		if b < 8 {
			t.half = ones << (b - 1)
		}
		for lane := range 8 {
			for j := range b {
				plane, bit := placeOf(b, lane, j)
				t.add(field{lane, plane, ones << j, bit - j})
			}
		}
	}
	return &tables
})

func placeOf(b, lane, j int) (plane, bit int) {
	var codes [unitCodes]int8
	half := 1 << (b - 1)
	if b == 8 {
		half = 0
	}
	for i := range codes {
		codes[i] = int8(-half)
	}
	codes[16*lane] = int8(1<<j - half)
	packed := make([]byte, 16*b)
	packing.PackUnit(b, unitCodes, packed, codes[:])
	for i, c := range packed {
		if c != 0 {
			return i / 16, bits.TrailingZeros8(c)
		}
	}
	panic("torchao: a bit of a code is not stored")
}

// add adds a field of a single bit. The bit joins the lane's previous field if both rotate alike.
func (t *bitPlanes) add(f field) {
	lane := t.ofLane[f.lane]
	if n := len(lane) - 1; n >= 0 && lane[n].plane == f.plane && lane[n].rotate == f.rotate {
		lane[n].mask |= f.mask
		for i := range t.ofPlane[f.plane] {
			if g := &t.ofPlane[f.plane][i]; g.lane == f.lane && g.rotate == f.rotate {
				g.mask |= f.mask
			}
		}
		return
	}
	t.ofLane[f.lane] = append(lane, f)
	t.ofPlane[f.plane] = append(t.ofPlane[f.plane], f)
}

// stored turns 8 codes into stored codes; bits past the low b are dropped.
func (t *bitPlanes) stored(q uint64) uint64 { return q&t.mask ^ t.half }

// signed is the inverse of stored: u - 2^(b-1) in each byte. The 0x80 keeps a
// byte from borrowing from its neighbour and is flipped back.
func (t *bitPlanes) signed(u uint64) uint64 {
	if t.bits == 8 {
		return u
	}
	return (u | 0x80*ones) - t.half ^ 0x80*ones
}

// pack packs the stored codes at 8 positions of 8 lanes; unit begins at the
// first of these positions in the first plane.
func (t *bitPlanes) pack(unit []byte, x *[8]uint64) {
	for p, fields := range t.ofPlane[:t.bits] {
		w := uint64(0)
		for i := range fields {
			f := &fields[i]
			w |= bits.RotateLeft64(x[f.lane&7]&f.mask, f.rotate)
		}
		putWord(unit[16*p:], w)
	}
}

// lane unpacks 8 positions of a lane to signed codes and reads only bytes that hold its codes; unit
// begins at the first of these positions in the first plane.
func (t *bitPlanes) lane(unit []byte, lane int) uint64 {
	x := uint64(0)
	fields := t.ofLane[lane&7]
	for i := range fields {
		f := &fields[i]
		x |= bits.RotateLeft64(binary.LittleEndian.Uint64(unit[16*f.plane:]), -f.rotate) & f.mask
	}
	return t.signed(x)
}

func word(codes []byte, at int) uint64 { return binary.LittleEndian.Uint64(codes[at:]) }

func putWord(dst []byte, w uint64) { binary.LittleEndian.PutUint64(dst, w) }
