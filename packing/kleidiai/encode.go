package kleidiai

import (
	"encoding/binary"

	"github.com/lowbit-go/gq/internal/bitplane"
)

const ones = 0x0101010101010101

func get64(b []byte, at int) uint64    { return binary.LittleEndian.Uint64(b[at:]) }
func put64(b []byte, at int, w uint64) { binary.LittleEndian.PutUint64(b[at:], w) }
func put32(b []byte, at int, w uint32) { binary.LittleEndian.PutUint32(b[at:], w) }
func get32(b []byte, at int) uint32    { return binary.LittleEndian.Uint32(b[at:]) }

// encodeRow stores the f.cols codes of row i of a panel. A call works along the row, because a
// panel of a usual K stays in the first-level cache while the other rows fill it.
func (f *frame) encodeRow(panel, codes []byte, i int) {
	dst, step := panel[f.data0+f.run*i:], f.nr*f.run
	gap := f.dataStep - f.nr*f.stream() // behind the codes of a group
	switch {
	case f.bits == 4:
		bitplane.PackNibbles(dst, codes, f.run, f.distance, f.group, step, gap)
	case f.bits == 8:
		encodeBytes(dst, codes, f.run, step)
	default:
		encodeQuarters(dst, codes, step)
	}
}

// The functions below store the stream of a row in dst, in runs that are step bytes apart. The
// number of codes is a multiple of 32.

func encodeBytes(dst, codes []byte, run, step int) {
	for k, at := 0, 0; k < len(codes); k, at = k+8, at+8/run*step {
		w := get64(codes, k)
		if run == 8 {
			put64(dst, at, w)
			continue
		}
		put32(dst, at, uint32(w))
		put32(dst, at+step, uint32(w>>32))
	}
}

// encodeQuarters stores the codes of each 16 columns 4 to a byte, 2 bits each, in runs of 4 bytes.
func encodeQuarters(dst, codes []byte, step int) {
	for k, at := 0, 0; k < len(codes); k, at = k+32, at+2*step {
		x := (*[32]byte)(codes[k:])
		put32(dst, at, quarters(get64(x[:], 0), get64(x[:], 8)))
		put32(dst, at+step, quarters(get64(x[:], 16), get64(x[:], 24)))
	}
}

// quarters packs 16 codes: bytes 0..3 and 4..7 of x, then bytes 0..3 and 4..7 of y.
func quarters(x, y uint64) uint32 {
	const low, half = 3 * ones, 2 * ones
	x, y = x&low^half, y&low^half
	x |= y << 4
	return uint32(x) | uint32(x>>32)<<2
}

// sum is the stored sum of a row's codes, multiplied by sumFactor.
func (f *frame) sum(codes []byte) int32 {
	if f.bits == 8 {
		return sumBytes(codes) * f.sumFactor
	}
	return sumShort(codes, f.bits) * f.sumFactor
}

const evenBytes = 0x00ff00ff00ff00ff

// sumBytes adds a multiple of 32 signed bytes. It adds 128 to each byte and sums pairs in 16-bit
// lanes, four to a word; 1024 bytes fit these lanes.
func sumBytes(codes []byte) int32 {
	sum := int32(-128 * len(codes))
	for len(codes) > 0 {
		part := codes[:min(len(codes), 1024)]
		codes = codes[len(part):]
		pairs := uint64(0)
		for k := 0; k < len(part); k += 32 {
			x := (*[32]byte)(part[k:])
			a, b := get64(x[:], 0)^0x80*ones, get64(x[:], 8)^0x80*ones
			c, d := get64(x[:], 16)^0x80*ones, get64(x[:], 24)^0x80*ones
			pairs += a&evenBytes + a>>8&evenBytes + b&evenBytes + b>>8&evenBytes
			pairs += c&evenBytes + c>>8&evenBytes + d&evenBytes + d>>8&evenBytes
		}
		sum += sumPairs(pairs)
	}
	return sum
}

// sumShort adds a multiple of 32 codes of at most 4 bits. It adds 2^(bits-1) to each code; the
// results are at most 15, so the sum of 16 fits a byte.
func sumShort(codes []byte, bits int) int32 {
	mask, half := uint64(ones)<<bits-ones, uint64(ones)<<(bits-1)
	sum := int32(-len(codes) << (bits - 1))
	for len(codes) > 0 {
		part := codes[:min(len(codes), 128)]
		codes = codes[len(part):]
		acc := uint64(0)
		for k := 0; k < len(part); k += 32 {
			x := (*[32]byte)(part[k:])
			acc += get64(x[:], 0)&mask ^ half
			acc += get64(x[:], 8)&mask ^ half
			acc += get64(x[:], 16)&mask ^ half
			acc += get64(x[:], 24)&mask ^ half
		}
		sum += sumPairs(acc&evenBytes + acc>>8&evenBytes)
	}
	return sum
}

func sumPairs(pairs uint64) int32 {
	pairs = pairs&0xffff0000ffff + pairs>>16&0xffff0000ffff
	return int32(uint32(pairs) + uint32(pairs>>32))
}
