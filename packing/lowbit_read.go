package packing

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/lowbit-go/gq/internal/bitplane"
	"github.com/lowbit-go/gq/internal/buffer"
)

func (l *Lowbit) UnpackPanel(p *Panel, src []byte) {
	p.Rows = l.nr
	l.CheckArgs(src, p)
	codes := buffer.Bytes(p.Codes)
	le := binary.LittleEndian
	for b := range l.packedCols / 32 {
		block := src[l.BlockOffset(b):][:l.blockBytes]
		for i := range 16 / l.width * l.pairs {
			s, pair := i/l.pairs, i%l.pairs
			for e := range 2 {
				x0, x1 := l.pair(block, i, e)
				x0, x1 = signedLowbit(l.bits, x0), signedLowbit(l.bits, x1)
				if l.width == 8 {
					row := codes[(2*pair+e)*l.packedCols+32*b+8*s:][:24]
					le.PutUint64(row, x0)
					le.PutUint64(row[16:], x1)
					continue
				}
				row0 := codes[(4*pair+2*e)*l.packedCols+32*b+4*s:]
				row1 := row0[l.packedCols:]
				le.PutUint32(row0, uint32(x0))
				le.PutUint32(row0[16:], uint32(x1))
				le.PutUint32(row1, uint32(x0>>32))
				le.PutUint32(row1[16:], uint32(x1>>32))
			}
		}
	}
	for r := range l.nr {
		l.scales(p.Scales[r*l.groups:][:l.groups], src, r)
		if l.zeros {
			l.zeroPoints(p.Zeros[r*l.groups:][:l.groups], src, r)
		}
		if p.Bias != nil {
			p.Bias[r] = l.tail(src, l.nr+r)
		}
	}
}

// pair reads the stored codes at positions 8e..8e+7 of pair i of lanes (h = 0, 1) of a block.
func (l *Lowbit) pair(block []byte, i, e int) (x0, x1 uint64) {
	le := binary.LittleEndian
	switch l.bits {
	case 4:
		u := le.Uint64(block[16*i+8*e:])
		return u & (15 * ones), u >> 4 & (15 * ones)
	case 8:
		lanes := block[32*i+8*e:]
		return le.Uint64(lanes), le.Uint64(lanes[16:])
	}
	return bitplane.Pair(l.bits, i%4, block[i/4*16*l.bits+8*e:], 16, 8)
}

func signedLowbit(bits int, u uint64) uint64 {
	if bits == 4 { // in two's complement, unlike TorchAO's
		u ^= 8 * ones
	}
	return bitplane.Signed(bits, u)
}

func (l *Lowbit) scales(dst []float32, panel []byte, r int) {
	at := r * l.h.ScaleDtype.Bytes()
	for g := range dst {
		dst[g] = l.h.ScaleDtype.get(panel[l.RecordOffset(g)+at:])
	}
}

func (l *Lowbit) zeroPoints(dst []int8, panel []byte, r int) {
	at := l.nr*l.h.ScaleDtype.Bytes() + r
	for g := range dst {
		dst[g] = int8(panel[l.RecordOffset(g)+at])
	}
}

// tail reads the i-th float32 of a panel's tail: nr sums, then nr biases.
func (l *Lowbit) tail(panel []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(panel[l.tailStart+4*i:]))
}

// rowWords reads the stored codes of row r in a block into the bytes of x: x[w] holds columns 8w to
// 8w+7. Only bytes of the row are read.
func (l *Lowbit) rowWords(x *[4]uint64, block []byte, r int) {
	le := binary.LittleEndian
	switch {
	case l.bits == 4: // 2 nibbles in a byte, runs of L bytes
		run, step := block[l.width*r:], l.width*l.nr
		var a, b uint64
		if l.width == 8 {
			a, b = le.Uint64(run), le.Uint64(run[step:])
		} else {
			a = uint64(le.Uint32(run)) | uint64(le.Uint32(run[step:]))<<32
			b = uint64(le.Uint32(run[2*step:])) | uint64(le.Uint32(run[3*step:]))<<32
		}
		const low = 15 * ones
		x[0], x[1], x[2], x[3] = a&low, b&low, a>>4&low, b>>4&low
	case l.width == 8:
		for s := range 2 {
			x[s], x[2+s] = l.pair(block, s*l.pairs+r/2, r%2)
		}
	default: // L is 4: runs of 4 columns
		for s := range 4 {
			i := s*l.pairs + r/4
			x0, x1 := bitplane.Pair(l.bits, i%4, block[i/4*16*l.bits+4*(r%4):], 16, 4)
			if s%2 == 0 {
				x[s/2], x[2+s/2] = x0, x1
			} else {
				x[s/2] |= x0 << 32
				x[2+s/2] |= x1 << 32
			}
		}
	}
}

func (l *Lowbit) rowBlock(dst *[32]byte, block []byte, r int) {
	var x [4]uint64
	l.rowWords(&x, block, r)
	for w, u := range x {
		if l.bits != 8 {
			u = signedLowbit(l.bits, u)
		}
		binary.LittleEndian.PutUint64(dst[8*w:], u)
	}
}

func (l *Lowbit) rowCodes(dst, panel []byte, r int) {
	b := 0
	for ; len(dst) >= 32; b++ {
		l.rowBlock((*[32]byte)(dst), panel[l.BlockOffset(b):][:l.blockBytes], r)
		dst = dst[32:]
	}
	if len(dst) > 0 {
		var block [32]byte
		l.rowBlock(&block, panel[l.BlockOffset(b):][:l.blockBytes], r)
		copy(dst, block[:])
	}
}

func (l *Lowbit) Row(codes []int8, scales []float32, zeros []int8, data []byte, row int) {
	panel, r := l.PanelOf(data, row)
	if codes != nil {
		l.rowCodes(buffer.Bytes(codes[:l.k]), panel, r)
	}
	if scales != nil {
		l.scales(scales[:l.groups], panel, r)
	}
	if zeros != nil && l.zeros {
		l.zeroPoints(zeros[:l.groups], panel, r)
	}
}

// DequantizeRow reads a row of data as K weights: float32((q - z) * scale), rounded once; z is -1/2
// on the half-step grid. Only bytes of the row are read.
func (l *Lowbit) DequantizeRow(dst []float32, data []byte, row int) {
	panel, r := l.PanelOf(data, row)
	dst = dst[:l.k]
	var x [4]uint64
	scale, zero := float32(0), float32(0)
	for k, group, groupEnd := 0, -1, 0; k < l.k; k += 32 {
		if k == groupEnd {
			group++
			groupEnd = l.groupEnd(group)
			scale, zero = l.record(panel, group, r)
		}
		// BlockOffset without its division: group counts the groups that end before this block.
		l.rowWords(&x, panel[k/32*l.blockBytes+group*l.recordBytes:][:l.blockBytes], r)
		if k+32 <= groupEnd {
			run := (*[32]float32)(dst[k:])
			dequantize8((*[8]float32)(run[:]), l.values, x[0], scale, zero)
			dequantize8((*[8]float32)(run[8:]), l.values, x[1], scale, zero)
			dequantize8((*[8]float32)(run[16:]), l.values, x[2], scale, zero)
			dequantize8((*[8]float32)(run[24:]), l.values, x[3], scale, zero)
			continue
		}
		for c := k; c < min(k+32, l.k); c++ {
			if c == groupEnd {
				group++
				groupEnd = l.groupEnd(group)
				scale, zero = l.record(panel, group, r)
			}
			u := byte(x[c%32/8] >> (8 * (c % 8)))
			dst[c] = float32((l.values[u] - zero) * scale)
		}
	}
}

// dequantize8 turns 8 stored codes into weights. The lookup takes 0.4 ns a weight, a conversion to
// float32 1.0 ns (AMD EPYC of Zen 5).
func dequantize8(dst *[8]float32, values *[256]float32, u uint64, scale, zero float32) {
	dst[0] = float32((values[uint8(u)] - zero) * scale)
	dst[1] = float32((values[uint8(u>>8)] - zero) * scale)
	dst[2] = float32((values[uint8(u>>16)] - zero) * scale)
	dst[3] = float32((values[uint8(u>>24)] - zero) * scale)
	dst[4] = float32((values[uint8(u>>32)] - zero) * scale)
	dst[5] = float32((values[uint8(u>>40)] - zero) * scale)
	dst[6] = float32((values[uint8(u>>48)] - zero) * scale)
	dst[7] = float32((values[uint8(u>>56)] - zero) * scale)
}

// valueTables holds the value of each stored byte, by number of bits.
var valueTables = sync.OnceValue(func() *[9][256]float32 {
	var tables [9][256]float32
	for b := 1; b <= 8; b++ {
		for u := range tables[b] {
			tables[b][u] = float32(int8(signedLowbit(b, uint64(u))))
		}
	}
	return &tables
})

func (l *Lowbit) record(panel []byte, g, r int) (scale, zero float32) {
	at := l.RecordOffset(g)
	size := l.h.ScaleDtype.Bytes()
	scale, zero = l.h.ScaleDtype.get(panel[at+r*size:]), l.offset
	if l.zeros {
		zero = float32(float32(int8(panel[at+l.nr*size+r])) * l.unit)
	}
	return scale, zero
}

func (l *Lowbit) Bias(data []byte, row int) float32 {
	panel, r := l.PanelOf(data, row)
	return l.tail(panel, l.nr+r)
}

// Sum reads the stored sum of a row, see "Lowbit" in the package's documentation.
func (l *Lowbit) Sum(data []byte, row int) float32 {
	panel, r := l.PanelOf(data, row)
	return l.PanelSum(panel, r)
}

func (l *Lowbit) PanelSum(panel []byte, row int) float32 { return l.tail(panel, row) }
