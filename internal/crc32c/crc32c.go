// Package crc32c has the checksum of the project's files: CRC-32C (Castagnoli), as in RFC 3720.
package crc32c

import (
	"hash/crc32"
	"sync"
)

var table = crc32.MakeTable(crc32.Castagnoli)

func Checksum(p []byte) uint32 { return crc32.Checksum(p, table) }

func Update(crc uint32, p []byte) uint32 { return crc32.Update(crc, table, p) }

// A Writer is the CRC32C of the bytes written so far.
type Writer uint32

func (w *Writer) Write(p []byte) (int, error) {
	*w = Writer(Update(uint32(*w), p))
	return len(p), nil
}

// Register returns the CRC register after p, starting at 0 and without the final inversion. Unlike
// CRC32C itself this function is linear: leading zeros do not change the register, and the register
// of p followed by n zeros is Shift(Register(p), n). The register of a block is therefore the xor
// of the registers of its pieces, each shifted by the number of bytes behind the piece, in whatever
// order the pieces arrive.
func Register(p []byte) uint32 {
	return ^Update(0xFFFFFFFF, p)
}

// Combine returns the CRC32C of two consecutive pieces from their checksums and the length in bytes
// of the second piece, with at most 16 multiplications of polynomials.
func Combine(crc1, crc2 uint32, len2 int64) uint32 {
	// The initial values and final xors of crc1 and crc2 cancel, except the shifted initial value of
	// crc1, the initial value of the whole.
	return Shift(crc1, len2) ^ crc2
}

// Shift returns the register after n zero bytes: crc, a polynomial over GF(2) in reflected
// order, times x^(8n) modulo CRC32C's polynomial.
func Shift(crc uint32, n int64) uint32 {
	if n < 0 {
		panic("crc32c: negative length in a CRC combination")
	}
	t := zeroPowers()
	for d := 0; n != 0; d++ {
		if j := n & 15; j != 0 {
			crc = crcMul(crc, t[d][j])
		}
		n >>= 4
	}
	return crc
}

// zeroPowers has t[d][j] = x^(8 j 16^d), the factor of j*16^d zero bytes.
var zeroPowers = sync.OnceValue(func() *[16][16]uint32 {
	var t [16][16]uint32
	unit := uint32(1) << 23 // x^8; bit 31-i is the coefficient of x^i
	for d := range t {
		p := uint32(1) << 31 // x^0
		for j := range t[d] {
			t[d][j] = p
			p = crcMul(p, unit)
		}
		unit = p
	}
	return &t
})

func crcMul(a, b uint32) uint32 {
	var p uint32
	for a != 0 {
		if a&(1<<31) != 0 {
			p ^= b
		}
		a <<= 1
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return p
}
