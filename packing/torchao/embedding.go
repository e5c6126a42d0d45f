package torchao

import (
	"github.com/lowbit-go/gq/internal/bitplane"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/packing"
)

// maxUnit is the largest number of codes of a unit of bit planes.
const maxUnit = 128

// Embedding is the [packing.Packer] of a packing.LayoutTorchAOEmbedding payload, TorchAO's type 2.
// Each row's codes are packed separately: as many units of 128 as fit, then a unit of 64 and a unit
// of 32 where they fit. A panel is a row.
//
// Scales (float32) and zero points (int8, stored even if all are 0) are in two companions,
// row-major. PackPanel and UnpackPanel ignore the scales and zero points of a panel. Row and
// DequantizeRow need the companions to read anything but codes; WithCompanions attaches them.
type Embedding struct {
	packing.Geometry
	prefix     []byte
	bits       int
	k          int // columns
	group      int // columns of a group
	companions packing.Companions
}

// newEmbedding fails like packing.NewGeometry.
func newEmbedding(h packing.Header) (*Embedding, error) {
	g, err := packing.NewGeometry(h, packing.LayoutTorchAOEmbedding)
	if err != nil {
		return nil, err
	}
	k := int(h.Cols)
	return &Embedding{
		Geometry: g, prefix: embeddingHeader(h.Bits), bits: int(h.Bits), k: k, group: k / int(h.Groups()),
	}, nil
}

func (e *Embedding) Prefix() []byte { return e.prefix }

// PackPanel stores the low bits of codes. At K 2048 it takes 0.06 (4 bits) and 0.01 (8 bits) ns per
// weight on one core of an AMD EPYC of Zen 5.
func (e *Embedding) PackPanel(dst []byte, p *packing.Panel) {
	e.CheckArgs(dst, p)
	switch e.bits {
	case 4: // the same in units of any length: columns i and i+16 share a byte
		for codes := buffer.Bytes(p.Codes); len(codes) >= 32; codes, dst = codes[32:], dst[16:] {
			x, out := (*[32]byte)(codes), (*[16]byte)(dst)
			putWord(out[:], nibbles(word(x[:], 0), word(x[:], 16)))
			putWord(out[8:], nibbles(word(x[:], 8), word(x[:], 24)))
		}
	case 8:
		copy(dst, buffer.Bytes(p.Codes))
	default:
		for codes := p.Codes; len(codes) > 0; {
			n := unitOf(len(codes))
			bitplane.PackUnit(e.bits, n, dst[:n/8*e.bits], codes[:n])
			codes, dst = codes[n:], dst[n/8*e.bits:]
		}
	}
}

// unitOf returns the number of codes of the next unit of a row with n codes left.
func unitOf(n int) int {
	switch {
	case n >= maxUnit:
		return maxUnit
	case n >= 64:
		return 64
	}
	return 32
}

func (e *Embedding) UnpackPanel(p *packing.Panel, src []byte) {
	p.Rows = 1
	e.CheckArgs(src, p)
	e.unpack(p.Codes, src)
}

func (e *Embedding) unpack(codes []int8, src []byte) {
	for len(codes) > 0 {
		n := e.unpackUnit(codes, src)
		codes, src = codes[n:], src[n/8*e.bits:]
	}
}

// unpackUnit unpacks the first unit of src to the start of codes, and returns its number of codes.
func (e *Embedding) unpackUnit(codes []int8, src []byte) int {
	n := unitOf(len(codes))
	bitplane.UnpackUnit(e.bits, n, codes[:n], src[:n/8*e.bits])
	return n
}

// CheckPanel accepts any bytes: every byte is a valid packed code.
func (e *Embedding) CheckPanel(i int, src []byte) error {
	e.CheckIndex(i, src)
	return nil
}

// WithCompanions returns an Embedding that also reads scales and zero points from these companions.
// A companion of the wrong size is an error; CheckCompanions checks the values.
func (e *Embedding) WithCompanions(scales, zeros []byte) (*Embedding, error) {
	companions, err := packing.NewCompanions(e.Header(), scales, zeros)
	if err != nil {
		return nil, err
	}
	with := *e
	with.companions = companions
	return &with, nil
}

// CheckCompanions is packing.Companions.Check. It panics if e has no companions.
func (e *Embedding) CheckCompanions() error { return e.companions.Check() }

func (e *Embedding) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	src, _ := e.PanelOf(data, row)
	if codes != nil {
		e.unpack(codes[:e.k], src)
	}
	e.companions.Row(scales, zeros, row)
}

// DequantizeRow reads K weights: float32(q - z) * scale, rounded once, as TorchAO does.
func (e *Embedding) DequantizeRow(dst []float32, data []byte, row int) {
	src, _ := e.PanelOf(data, row)
	dst = dst[:e.k]
	var buffer [maxUnit]int8
	scale, zero := float32(0), int32(0)
	for k, group := 0, 0; k < e.k; {
		codes := buffer[:min(maxUnit, e.k-k)]
		codes = codes[:e.unpackUnit(codes, src)]
		src = src[len(codes)/8*e.bits:]
		for len(codes) > 0 {
			if k == group*e.group {
				scale, zero = e.companions.Scale(row, group), int32(e.companions.Zero(row, group))
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

func (e *Embedding) Bias(data []byte, row int) float32 {
	e.PanelOf(data, row)
	return 0
}
