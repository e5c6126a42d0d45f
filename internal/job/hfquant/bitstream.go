package hfquant

import "encoding/binary"

// The formats store unsigned codes of 1 to 8 bits without gaps, the least significant bit of the
// first code in the least significant bit of the first byte. Words of 16 or 32 bits are
// little-endian, so codes that cross words are the same stream of bytes.

// streamWords is the number of 32-bit words that hold a stream of n codes.
func streamWords(n int64, bits int) int64 { return (n*int64(bits) + 31) / 32 }

// packCodes stores codes plus 2^(bits-1) in dst, at least as long as the stream, and then zeros.
func packCodes(dst []byte, codes []int8, bits int) {
	offset := uint64(1) << (bits - 1)
	mask := offset<<1 - 1
	for len(codes) >= 8 && len(dst) >= 8 { // 8 codes are bits bytes
		v := uint64(0)
		for i := 7; i >= 0; i-- {
			v = v<<bits | (uint64(int64(codes[i]))+offset)&mask
		}
		binary.LittleEndian.PutUint64(dst, v)
		codes, dst = codes[8:], dst[bits:]
	}
	acc, have, at := uint64(0), 0, 0
	for _, c := range codes {
		acc |= (uint64(int64(c)) + offset) & mask << have
		for have += bits; have >= 8; have -= 8 {
			dst[at] = byte(acc)
			acc >>= 8
			at++
		}
	}
	if have > 0 {
		dst[at] = byte(acc)
		at++
	}
	clear(dst[at:])
}

// unpackCodes reads codes, less 2^(bits-1), from src, at least as long as the stream.
func unpackCodes(codes []int8, src []byte, bits int) {
	offset := uint64(1) << (bits - 1)
	mask := offset<<1 - 1
	for len(codes) >= 8 && len(src) >= 8 { // 8 codes are bits bytes
		v := binary.LittleEndian.Uint64(src)
		for i := range 8 {
			codes[i] = int8(v&mask - offset)
			v >>= bits
		}
		codes, src = codes[8:], src[bits:]
	}
	acc, have, at := uint64(0), 0, 0
	for i := range codes {
		for have < bits {
			acc |= uint64(src[at]) << have
			have += 8
			at++
		}
		codes[i] = int8(acc&mask - offset)
		acc >>= bits
		have -= bits
	}
}

// columns is a matrix of little-endian 32-bit words with a stream of codes down each column.
type columns struct {
	view []byte
	cols int64
	bits int
}

func (c *columns) word(row, col int64) uint64 {
	return uint64(binary.LittleEndian.Uint32(c.view[4*(row*c.cols+col):]))
}

// at returns code n, less 2^(bits-1), of a column.
func (c *columns) at(n, col int64) int8 {
	bit := n * int64(c.bits)
	row, shift := bit/32, int(bit%32)
	v := c.word(row, col) >> shift
	if shift+c.bits > 32 {
		v |= c.word(row+1, col) << (32 - shift)
	}
	offset := uint64(1) << (c.bits - 1)
	return int8(v&(offset<<1-1) - offset)
}

// set stores code plus 2^(bits-1) as code n of a column where the code's bits are zero.
func (c *columns) set(n, col int64, code int8) {
	offset := uint64(1) << (c.bits - 1)
	bit := n * int64(c.bits)
	row, shift := bit/32, int(bit%32)
	v := (uint64(int64(code)) + offset) & (offset<<1 - 1) << shift
	c.or(row, col, uint32(v))
	if shift+c.bits > 32 {
		c.or(row+1, col, uint32(v>>32))
	}
}

func (c *columns) or(row, col int64, v uint32) {
	b := c.view[4*(row*c.cols+col):]
	binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)|v)
}

// codesOfWords is the smallest number of codes that fill whole words of 32 bits.
func codesOfWords(bits int) int64 {
	for n := int64(1); ; n *= 2 {
		if n*int64(bits)%32 == 0 {
			return n
		}
	}
}
