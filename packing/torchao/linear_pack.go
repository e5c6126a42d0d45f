package torchao

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/packing"
)

type packRow struct {
	codes  []byte    // of all columns
	scales []float32 // of all groups
	zeros  []int8    // of all groups, or nil
	sum    int       // of the current group's codes so far
}

// PackPanel stores the low bits of a code. At group 32 and K 2048 it takes 0.15 (4 and 8 bits) and
// 0.36 to 0.53 ns per weight (others) on one core of an AMD EPYC of Zen 5.
func (l *linear) PackPanel(dst []byte, p *packing.Panel) {
	l.CheckArgs(dst, p)
	var rows [nr]packRow
	for r := range rows {
		if r >= p.Rows {
			rows[r] = l.blank()
			continue
		}
		rows[r].codes = buffer.Bytes(p.Codes[r*l.k:][:l.k])
		rows[r].scales = p.Scales[r*l.groups:][:l.groups]
		if l.zeros {
			rows[r].zeros = p.Zeros[r*l.groups:][:l.groups]
		}
	}
	unitBytes, k := 16*l.bits, 0
	for g := range l.groups {
		group := dst[g*l.groupBytes:][:l.groupBytes]
		for end := k + l.group; k < end; {
			switch {
			case l.bits == 4 && k+32 <= end:
				packNibbles((*[2 * 16 * 4]byte)(group), &rows, k)
				group, k = group[2*unitBytes:], k+32
			case l.bits == 8 && k+32 <= end:
				packBytes((*[2 * 16 * 8]byte)(group), &rows, k)
				group, k = group[2*unitBytes:], k+32
			default:
				l.packUnit(group, &rows, k)
				group, k = group[unitBytes:], k+chunkCols
			}
		}
		l.packRecord(group, &rows, g)
	}
	if l.bias {
		biases := dst[l.PanelBytes()-4*nr:]
		clear(biases)
		for r, b := range p.Bias[:min(p.Rows, len(p.Bias))] {
			putFloat(biases, r, b)
		}
	}
}

// packNibbles packs 32 columns of 4-bit codes, from column k on, into two units. A unit is 4 planes
// of 16 bytes; plane 2h+r/4 holds half h of row r in the low nibbles from byte 8(r%2) on, and half
// h of row r+2 in the high nibbles.
func packNibbles(units *[2 * 16 * 4]byte, rows *[nr]packRow, k int) {
	const low = 15 * ones
	for i := range 4 {
		row0, row2 := &rows[i/2*4+i%2], &rows[i/2*4+i%2+2]
		x, y, out := (*[32]byte)(row0.codes[k:]), (*[32]byte)(row2.codes[k:]), units[8*i:][:104]
		v0, v1 := nibbles(word(x[:], 0), word(y[:], 0)), nibbles(word(x[:], 8), word(y[:], 8))
		v2, v3 := nibbles(word(x[:], 16), word(y[:], 16)), nibbles(word(x[:], 24), word(y[:], 24))
		putWord(out, v0)
		putWord(out[32:], v1)
		putWord(out[64:], v2)
		putWord(out[96:], v3)
		row0.sum += sumPairs(bytePairs(v0&low+v1&low+v2&low+v3&low)) - 32*8
		row2.sum += sumPairs(bytePairs(v0>>4&low+v1>>4&low+v2>>4&low+v3>>4&low)) - 32*8
	}
}

// nibbles packs the stored codes of 8 columns of two rows.
func nibbles(row0, row2 uint64) uint64 {
	const low = 15 * ones
	return (row0&low | row2&low<<4) ^ 0x88*ones
}

// packBytes packs 32 columns of 8-bit codes, from column k on, into two units. The codes are stored
// unchanged: half h of row r is 8 bytes at 64h+8r.
func packBytes(units *[2 * 16 * 8]byte, rows *[nr]packRow, k int) {
	const half = 0x80 * ones
	for r := range rows {
		row := &rows[r]
		x, out := (*[32]byte)(row.codes[k:]), units[8*r:][:200]
		x0, x1, x2, x3 := word(x[:], 0), word(x[:], 8), word(x[:], 16), word(x[:], 24)
		putWord(out, x0)
		putWord(out[64:], x1)
		putWord(out[128:], x2)
		putWord(out[192:], x3)
		row.sum += sumPairs(bytePairs(x0^half)+bytePairs(x1^half)+bytePairs(x2^half)+bytePairs(x3^half)) - 32*128
	}
}

// packUnit packs 16 columns of codes of any width, from column k on, into a unit.
func (l *linear) packUnit(unit []byte, rows *[nr]packRow, k int) {
	// The sums add unsigned numbers: stored codes, or q + 128 at 8 bits.
	bias, half := uint64(0), 1<<(l.bits-1)
	if l.bits == 8 {
		bias = 0x80 * ones
	}
	for e := range 2 {
		var x [8]uint64
		for p := range 4 {
			row := &rows[2*p+e]
			c := (*[chunkCols]byte)(row.codes[k:])
			x0, x1 := l.planes.stored(word(c[:], 0)), l.planes.stored(word(c[:], 8))
			x[p], x[4+p] = x0, x1
			row.sum += sumPairs(bytePairs(x0^bias)+bytePairs(x1^bias)) - chunkCols*half
		}
		l.planes.pack(unit[8*e:], &x)
	}
}

// packRecord writes the scales, sums and zero points of group g, and starts the next group's sums.
func (l *linear) packRecord(dst []byte, rows *[nr]packRow, g int) {
	record := (*[2 * 4 * nr]byte)(dst)
	for r := range rows {
		row := &rows[r]
		binary.LittleEndian.PutUint32(record[4*r:], math.Float32bits(row.scales[g]))
		binary.LittleEndian.PutUint32(record[4*(nr+r):], uint32(row.sum))
		row.sum = 0
	}
	if l.zeros {
		zeros := (*[4 * nr]byte)(dst[2*4*nr:])
		for r := range rows {
			binary.LittleEndian.PutUint32(zeros[4*r:], uint32(rows[r].zeros[g]))
		}
	}
}

// bytePairs adds pairs of bytes in four 16-bit lanes.
func bytePairs(x uint64) uint64 {
	const even = 0x00ff00ff00ff00ff
	return x&even + x>>8&even
}

// sumPairs adds four 16-bit lanes. The sum must be below 2^16.
func sumPairs(x uint64) int { return int(x * 0x0001000100010001 >> 48) }

func putFloat(dst []byte, i int, v float32) {
	binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
}

// nr is the number of rows of a panel of types 1 and 3.
const nr = 8

// chunkCols is the number of columns of each of the panel's 8 rows in a unit of 128 codes. Lane
// 4h+p of the unit is half h, 8 columns, of rows 2p and 2p+1.
const chunkCols = 16

// linear is the [packing.Packer] of a packing.LayoutTorchAOLinear payload, TorchAO's type 1. With G
// groups of g columns, a panel is
//
//	G times: 8 x g codes | 8 float32 scales | 8 int32 sums of codes [| 8 int32 zero points]
//	[8 float32 biases]
//
// Padding rows have codes, scales, sums, zero points and biases of 0.
type linear struct {
	packing.Geometry
	planes     *bitPlanes
	prefix     []byte
	bits       int
	k          int // columns
	group      int // columns of a group
	groups     int
	zeros      bool
	bias       bool
	codeBytes  int            // codes of a group in a panel; the group's record follows
	groupBytes int            // codes and record of a group
	blank      func() packRow // a row past the last
}

// newLinear fails like packing.NewGeometry.
func newLinear(h packing.Header) (*linear, error) {
	g, err := packing.NewGeometry(h, packing.LayoutTorchAOLinear)
	if err != nil {
		return nil, err
	}
	l := &linear{
		Geometry: g, planes: planesOf(int(h.Bits)), prefix: tiledHeader(typeLinear, &h), bits: int(h.Bits), k: int(h.Cols),
		groups: int(h.Groups()), zeros: h.ZeroKind == packing.ZeroInt8, bias: h.Flags&packing.FlagBias != 0,
	}
	l.blank = sync.OnceValue(func() packRow {
		return packRow{codes: make([]byte, l.k), scales: make([]float32, l.groups), zeros: make([]int8, l.groups)}
	})
	l.group = l.k / l.groups
	l.codeBytes = l.group * l.bits // 8 rows; 8 codes take as many bytes as a code has bits
	l.groupBytes = l.codeBytes + 2*4*nr
	if l.zeros {
		l.groupBytes += 4 * nr
	}
	return l, nil
}

func (l *linear) Prefix() []byte { return l.prefix }
