package kleidiai

import (
	"encoding/binary"
	"fmt"

	"github.com/lowbit-go/gq/internal/floats"
)

// Nibbles says how two 4-bit codes lie in a byte of a source.
type Nibbles uint8

// The forms, named as KleidiAI's functions name their sources. Of two
// consecutive codes the first is in the low nibble unless the name says
// otherwise.
const (
	NibblesU4     Nibbles = iota // q + 8, "qsu4...s1s0": rhs_zero_point 8
	NibblesS4                    // two's complement: rhs_zero_point 0
	NibblesU4S0S1                // q + 8, the first code in the high nibble: "qau4...s0s1"
)

// get reads the first (i = 0) or second code of a byte.
func (f Nibbles) get(b byte, i int) int8 {
	if f == NibblesU4S0S1 {
		i ^= 1
	}
	return int8(b>>(4*i)&15^f.sign()^8) - 8
}

// sign is the bit that makes a stored code one in two's complement.
func (f Nibbles) sign() byte {
	if f == NibblesS4 {
		return 0
	}
	return 8
}

// spread reads the codes of src into dst, one to a byte, 8 at a time; the rest
// of dst (less than 8) is not set.
func (f Nibbles) spread(dst, src []byte) {
	sign, first, second := uint64(f.sign())*ones^8*ones, uint(0), uint(4)
	if f == NibblesU4S0S1 {
		first, second = 4, 0
	}
	for k := 0; k+8 <= len(dst); k += 8 {
		x := uint64(get32(src, k/2)) // every byte to the low half of two
		x = (x | x<<16) & 0x0000ffff0000ffff
		x = (x | x<<8) & 0x00ff00ff00ff00ff
		x = x>>(first%64)&0x000f000f000f000f | x>>(second%64)&0x000f000f000f000f<<8
		// As signedNibbles, with its first XOR merged.
		put64(dst, k, (x^sign|0x80*ones)-8*ones^0x80*ones)
	}
}

// checkSource panics unless rows of stride bytes hold a matrix of rows x
// rowBytes.
func checkSource(src []byte, rows, rowBytes, stride int) {
	if stride < rowBytes || len(src) < (rows-1)*stride+rowBytes {
		panic(fmt.Sprintf("kleidiai: %d bytes of source, stride %d, for %d rows of %d bytes", len(src), stride, rows, rowBytes))
	}
}

// NibblesNxK reads an n x k source, n rows of (k+1)/2 bytes that start stride
// bytes apart, into Weights.Codes.
func NibblesNxK(src []byte, n, k, stride int, form Nibbles) []int8 {
	checkSource(src, n, (k+1)/2, stride)
	codes := make([]int8, n*k)
	for row := range n {
		in, out := src[row*stride:][:(k+1)/2], codeBytes(codes[row*k:][:k])
		form.spread(out, in)
		for col := k / 8 * 8; col < k; col++ {
			out[col] = byte(form.get(in[col/2], col%2))
		}
	}
	return codes
}

// NibblesKxN reads a k x n source, k rows of (n+1)/2 bytes that start stride
// bytes apart, into Weights.Codes with RowPairs: if n is odd there is a row n,
// of whatever the source has in the unused nibbles.
func NibblesKxN(src []byte, n, k, stride int, form Nibbles) []int8 {
	checkSource(src, k, (n+1)/2, stride)
	codes := make([]int8, (n+1)/2*2*k)
	for row := range (n + 1) / 2 * 2 {
		for col := range k {
			codes[row*k+col] = form.get(src[col*stride+row/2], row%2)
		}
	}
	return codes
}

// Int8KxN reads a k x n source of int8, k rows that start stride bytes apart,
// into Weights.Codes. An n x k source is Weights.Codes already.
func Int8KxN(src []int8, n, k, stride int) []int8 {
	checkSource(codeBytes(src), k, n, stride)
	codes := make([]int8, n*k)
	for row := range n {
		for col := range k {
			codes[row*k+col] = src[col*stride+row]
		}
	}
	return codes
}

// Blocks16 reads the source of the ScaleF16 kinds into Weights.Codes and
// Scales: n rows that start stride bytes apart, each of k/bl blocks of an F16
// scale and bl/2 bytes, of which byte j has q + 8 of columns j (low nibble) and
// j + bl/2. With bl = 32 that is GGUF's Q4_0. It panics if bl does not divide k
// or is odd.
func Blocks16(src []byte, n, k, bl, stride int) (codes []int8, scales []float32) {
	if bl < 2 || bl%2 != 0 || k%bl != 0 {
		panic(fmt.Sprintf("kleidiai: blocks of %d in rows of %d", bl, k))
	}
	checkSource(src, n, k/bl*(bl/2+2), stride)
	codes, scales = make([]int8, n*k), make([]float32, n*k/bl)
	for i := range scales {
		row, g := i/(k/bl), i%(k/bl)
		block := src[row*stride+g*(bl/2+2):]
		scales[i] = floats.F16ToF32(binary.LittleEndian.Uint16(block))
		out := codes[i*bl:][:bl]
		for j, b := range block[2:][:bl/2] {
			out[j], out[j+bl/2] = NibblesU4.get(b, 0), NibblesU4.get(b, 1)
		}
	}
	return codes, scales
}

// QuartersNxK reads the source of the QSU2CXP kinds, n rows of k/4 bytes with 4
// consecutive codes q + 2 each, the first in the low bits, into Weights.Codes.
// It panics if k is not a multiple of 4.
func QuartersNxK(src []byte, n, k int) []int8 {
	if k%4 != 0 {
		panic(fmt.Sprintf("kleidiai: 2-bit codes in rows of %d", k))
	}
	checkSource(src, n, k/4, k/4)
	codes := make([]int8, n*k)
	for i := range codes {
		codes[i] = int8(src[i/4]>>(i%4*2)&3) - 2
	}
	return codes
}
