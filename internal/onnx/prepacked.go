package onnx

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// prepackedKey begins the keys of external data with which ONNX Runtime finds packed weights.
const prepackedKey = "prepacked"

// hashDigits is the greatest number of digits of a hash.
const hashDigits = 20

// SetPrepacked says where ONNX Runtime finds the weights of a MatMulNBits node as its kernels read
// them: length bytes at an offset of the tensor's file, with the hash that [PackedHash] returns. The
// tensor's comment makes the size of the message the same for every hash.
func (t *Tensor) SetPrepacked(hash uint64, offset, length int64) {
	digits := fmt.Sprint(hash)
	t.External.Prepacked = []Pair{{prepackedKey + "_1", fmt.Sprintf("MatMulNBits+%s|%d;%d;0", digits, offset, length)}}
	t.Doc = strings.Repeat(".", 1+hashDigits-len(digits))
}

// PackedHash returns the hash by which ONNX Runtime recognizes packed weights: two words of
// MurmurHash3_x86_128 (Austin Appleby, smhasher) with seed 0, of the first of which ONNX Runtime
// clears three bits (PrepackedWeights::GetHash).
type PackedHash struct {
	h      [4]uint32
	n      int
	rest   [16]byte
	filled int
}

var murmurFactors = [4]uint32{0x239b961b, 0xab0e9789, 0x38b34ae5, 0xa1e38b93}

// Write adds bytes. It never fails.
func (m *PackedHash) Write(b []byte) (int, error) {
	written := len(b)
	m.n += written
	for len(b) > 0 {
		n := copy(m.rest[m.filled:], b)
		m.filled, b = m.filled+n, b[n:]
		if m.filled == len(m.rest) {
			m.block()
			m.filled = 0
		}
	}
	return written, nil
}

// mixed is word i of the block as it is mixed into the hash.
func (m *PackedHash) mixed(i int) uint32 {
	rotations := [4]int{15, 16, 17, 18}
	k := binary.LittleEndian.Uint32(m.rest[4*i:]) * murmurFactors[i]
	return bits.RotateLeft32(k, rotations[i]) * murmurFactors[(i+1)%4]
}

func (m *PackedHash) block() {
	rotations := [4]int{19, 17, 15, 13}
	added := [4]uint32{0x561ccd1b, 0x0bcaa747, 0x96cd1c35, 0x32ac3b17}
	for i := range 4 {
		m.h[i] ^= m.mixed(i)
		m.h[i] = (bits.RotateLeft32(m.h[i], rotations[i])+m.h[(i+1)%4])*5 + added[i]
	}
}

// Sum returns the hash of what was written.
func (m *PackedHash) Sum() uint64 {
	h := m.h
	if m.filled > 0 {
		clear(m.rest[m.filled:])
		for i := range 4 {
			h[i] ^= m.mixed(i)
		}
	}
	for i := range h {
		h[i] ^= uint32(m.n)
	}
	spread := func() {
		h[0] += h[1] + h[2] + h[3]
		for i := 1; i < 4; i++ {
			h[i] += h[0]
		}
	}
	spread()
	for i, v := range h {
		v = (v ^ v>>16) * 0x85ebca6b
		v = (v ^ v>>13) * 0xc2b2ae35
		h[i] = v ^ v>>16
	}
	spread()
	return uint64(h[0]&^7) + uint64(h[1])<<32
}
