package packing

import (
	"encoding/binary"
	"math"

	"github.com/lowbit-go/gq/internal/bitplane"
	"github.com/lowbit-go/gq/internal/buffer"
)

// PackPanel stores the low bits of a code that does not fit.
func (l *Lowbit) PackPanel(dst []byte, p *Panel) {
	l.CheckArgs(dst, p)
	codes := buffer.Bytes(p.Codes)
	whole := l.k%32 == 0 && l.group%32 == 0 // groups of whole blocks
	nibbles, bytes := whole && l.bits == 4, whole && l.bits == 8 && l.width == 8
	for r := range l.nr {
		i := min(r, p.Rows-1)
		row := codes[i*l.packedCols:][:l.packedCols]
		if r < p.Rows {
			var zeros []int8
			if l.zeros {
				zeros = p.Zeros[r*l.groups:][:l.groups]
			}
			l.putTail(dst, p, r, l.sum(row, p.Scales[r*l.groups:][:l.groups], zeros))
		} else {
			l.putTail(dst, p, r, l.tail(dst, i))
		}
		// A row stays in the first-level cache between the two passes.
		switch {
		case nibbles:
			bitplane.PackNibbles(dst[l.width*r:], row, l.width, 16, l.group, l.nr*l.width, l.recordBytes)
		case bytes:
			l.packBytes(dst, row, r)
		}
	}
	for g := range l.groups {
		l.putRecord(dst[l.RecordOffset(g):], p, g)
	}
	if !nibbles && !bytes {
		l.packPlanes(dst, codes, p.Rows)
	}
}

// packBytes stores the 8-bit codes of row r, unchanged, 8 columns to a lane.
func (l *Lowbit) packBytes(panel, codes []byte, r int) {
	next := 16 * l.nr // from the lanes of 8 columns to the next 8
	for k, at := 0, 32*(r/2)+8*(r%2); k < len(codes); at += l.recordBytes {
		for end := min(k+l.group, len(codes)); k < end; k, at = k+32, at+2*next {
			x := (*[32]byte)(codes[k:])
			lanes0, lanes1 := panel[at:][:24], panel[at+next:][:24]
			binary.LittleEndian.PutUint64(lanes0, word(x[:], 0))
			binary.LittleEndian.PutUint64(lanes0[16:], word(x[:], 16))
			binary.LittleEndian.PutUint64(lanes1, word(x[:], 8))
			binary.LittleEndian.PutUint64(lanes1[16:], word(x[:], 24))
		}
	}
}

func (l *Lowbit) putTail(panel []byte, p *Panel, r int, sum float32) {
	bias := float32(0)
	if p.Bias != nil {
		bias = p.Bias[min(r, p.Rows-1)]
	}
	tail := panel[l.tailStart:]
	binary.LittleEndian.PutUint32(tail[4*r:], math.Float32bits(sum))
	binary.LittleEndian.PutUint32(tail[4*(l.nr+r):], math.Float32bits(bias))
}

func (l *Lowbit) putRecord(record []byte, p *Panel, g int) {
	size := l.h.ScaleDtype.Bytes()
	for r := range l.nr {
		i := min(r, p.Rows-1)*l.groups + g
		if l.h.ScaleDtype == ScaleBF16 { // the default: not a call
			binary.LittleEndian.PutUint16(record[2*r:], uint16(math.Float32bits(p.Scales[i])>>16))
		} else {
			l.h.ScaleDtype.put(record[r*size:], p.Scales[i])
		}
		if l.zeros {
			record[l.nr*size+r] = byte(p.Zeros[i])
		}
	}
}

// sum is the sum of a row: in order of group, then block of 32 columns, then segment of the block,
// sum += float32(float32(sum of q - z) * scale). Segment s holds columns L*s .. L*s+L-1 of both
// halves of the block.
//
// Only the product with the scale and the addition round. The other numbers are multiples of 1/2
// below 2^13.
func (l *Lowbit) sum(codes []byte, scales []float32, zeros []int8) float32 {
	sum, zero := float32(0), l.offset
	for g, scale := range scales {
		if zeros != nil {
			zero = float32(float32(zeros[g]) * l.unit)
		}
		zero4 := float32(4 * zero)
		// A group starts at a multiple of 16; the last group may end anywhere.
		for k, end := g*l.group, l.groupEnd(g); k < end; {
			n := min(32-k%32, end-k) // columns of the group in this block
			switch {
			case n == 32 && l.width == 8: // the usual case
				for z := 4 * zero4; end-k >= 32; k += 32 {
					x := (*[32]byte)(codes[k:])
					sum += float32((float32(sum16(word(x[:], 0), word(x[:], 16))) - z) * scale)
					sum += float32((float32(sum16(word(x[:], 8), word(x[:], 24))) - z) * scale)
				}
			case n == 32:
				for z := 2 * zero4; end-k >= 32; k += 32 {
					x := (*[32]byte)(codes[k:])
					sum = add8x2(sum, scale, z, word(x[:], 0), word(x[:], 16))
					sum = add8x2(sum, scale, z, word(x[:], 8), word(x[:], 24))
				}
			case n == 16 && l.width == 8: // half of the block; the other half adds nothing
				sum += float32((float32(sum16(word(codes, k), 0)) - 2*zero4) * scale)
				sum += float32((float32(sum16(word(codes, k+8), 0)) - 2*zero4) * scale)
				k += n
			case n == 16:
				sum = add8x2(sum, scale, zero4, word(codes, k), 0)
				sum = add8x2(sum, scale, zero4, word(codes, k+8), 0)
				k += n
			default:
				sum = l.addRagged(sum, scale, zero, codes[k:k+n])
				k += n
			}
		}
	}
	return sum
}

// addRagged adds to sum the segments of the block, or half block, in which the matrix ends.
func (l *Lowbit) addRagged(sum, scale, zero float32, codes []byte) float32 {
	var part, count [4]float32
	for i, q := range codes {
		part[i%16/l.width] += float32(int8(q))
		count[i%16/l.width]++
	}
	for s := range 16 / l.width {
		d := part[s] - float32(count[s]*zero)
		sum += float32(d * scale)
	}
	return sum
}

const ones = 0x0101010101010101

func word(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// sum16 adds the 16 signed bytes of x and y: 128 to each, then pairs, then a multiplication.
func sum16(x, y uint64) int32 {
	return int32((bytePairs(x)+bytePairs(y))*0x0001000100010001>>48) - 16*128
}

// add8x2 adds to sum the segments of the 4 low bytes of x and y, and of the 4 high bytes. z is the
// zero point times the columns of a segment.
func add8x2(sum, scale, z float32, x, y uint64) float32 {
	pairs := bytePairs(x) + bytePairs(y)
	pairs += pairs >> 16
	sum += float32((float32(int32(pairs&0xffff)-8*128) - z) * scale)
	return sum + float32((float32(int32(pairs>>32&0xffff)-8*128)-z)*scale)
}

// bytePairs adds 128 to each signed byte and sums pairs.
func bytePairs(x uint64) uint64 {
	const even = 0x00ff00ff00ff00ff
	x ^= 0x80 * ones
	return x&even + x>>8&even
}

func (l *Lowbit) packPlanes(panel, codes []byte, rows int) {
	// The codes at positions 8e.. of lane j of unit u begin at start[u][e][j] in the first block: 8
	// columns of a row, or 4 columns of a row and, from next[u][e][j] on, 4 columns of the next row.
	var start, next [2][2][8]int
	for i := range 4 * l.nr {
		lane, e := i/2, i%2
		s, p, h := lane/2/l.pairs, lane/2%l.pairs, lane%2
		r, k := (16*p+8*e)/l.width, 16*h+l.width*s
		start[lane/8][e][lane%8] = min(r, rows-1)*l.packedCols + k
		next[lane/8][e][lane%8] = min(r+1, rows-1)*l.packedCols + k
	}
	unitBytes := 16 * l.bits
	for b := range l.packedCols / 32 {
		block, codes := panel[l.BlockOffset(b):][:l.blockBytes], codes[32*b:]
		for u := range l.nr / 4 {
			for e := range 2 {
				var x [8]uint64
				if l.width == 8 {
					for j, at := range start[u][e] {
						x[j] = word(codes, at)&l.mask ^ l.flip
					}
				} else {
					for j, at := range start[u][e] {
						low, high := codes[at:][:4], codes[next[u][e][j]:][:4]
						w := uint64(binary.LittleEndian.Uint32(low)) | uint64(binary.LittleEndian.Uint32(high))<<32
						x[j] = w&l.mask ^ l.flip
					}
				}
				bitplane.PutColumn(l.bits, block[u*unitBytes:], e, &x)
			}
		}
	}
}
