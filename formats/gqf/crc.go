package gqf

import (
	"hash/crc32"
	"sync"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// rawCRC is the CRC register after p when it starts at 0 and is not inverted at
// the end. Unlike CRC32C itself it is linear: zeros in front of p do not change
// it, and the register of p followed by n zeros is crcShift(rawCRC(p), n). So
// the register of a block is the xor of its pieces' registers, each shifted by
// the bytes that follow it, in whatever order the pieces arrive.
func rawCRC(p []byte) uint32 {
	return ^crc32c.Update(0xFFFFFFFF, p)
}

// CombineCRC32C returns the CRC32C of two pieces in a row, from the CRC32C of
// each and the length of the second in bytes. It never looks at the bytes: at most
// 16 multiplications of polynomials, whatever the length.
func CombineCRC32C(crc1, crc2 uint32, len2 int64) uint32 {
	// crc1's and crc2's initial values and final xors cancel but for crc1's
	// shifted one, which stands for the initial value of the whole.
	return crcShift(crc1, len2) ^ crc2
}

// crcShift multiplies crc, a polynomial over GF(2) in reflected order, by x^(8n)
// modulo CRC32C's polynomial: the register after n zero bytes.
func crcShift(crc uint32, n int64) uint32 {
	if n < 0 {
		panic("gqf: negative length in a CRC combination")
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

// zeroPowers gives t[d][j] = x^(8 j 16^d): what j*16^d zero bytes multiply by.
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

// crcMul multiplies two polynomials modulo CRC32C's polynomial.
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
