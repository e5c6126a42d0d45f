package onnx

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
)

// SetPrepacked says where ONNX Runtime finds the weights of a MatMulNBits node as its kernels read
// them: length bytes at an offset of the tensor's file, with a hash of [PackedHash]. It follows
// SetPlace. The tensor's comment makes the size of the message the same for every hash.
func (t *Tensor) SetPrepacked(hash uint64, offset, length int64) {
	digits := fmt.Sprint(hash)
	t.Doc = strings.Repeat(".", 21-len(digits)) // one more than the most digits
	t.External = append(t.External[:3:3], Pair{"prepacked_1", fmt.Sprintf("MatMulNBits+%s|%d;%d;0", digits, offset, length)})
}

// PackedHash computes the hash by which ONNX Runtime recognizes packed weights: two words of
// MurmurHash3_x86_128 (Austin Appleby, smhasher) with seed 0. ONNX Runtime clears three bits of the
// first (PrepackedWeights::GetHash).
type PackedHash struct {
	h      [4]uint32
	n      int
	rest   [16]byte
	filled int
}

// Write adds bytes. It never fails.
func (m *PackedHash) Write(b []byte) (int, error) {
	written := len(b)
	m.n += written
	for len(b) > 0 {
		n := copy(m.rest[m.filled:], b)
		m.filled, b = m.filled+n, b[n:]
		if m.filled < len(m.rest) {
			break
		}
		m.filled = 0
		for i := range 4 {
			m.h[i] ^= m.mixed(i)
			m.h[i] = (bits.RotateLeft32(m.h[i], 19-2*i)+m.h[(i+1)%4])*5 + [4]uint32{0x561ccd1b, 0x0bcaa747, 0x96cd1c35, 0x32ac3b17}[i]
		}
	}
	return written, nil
}

// mixed is word i of the block as it is mixed into the hash.
func (m *PackedHash) mixed(i int) uint32 {
	factors := [4]uint32{0x239b961b, 0xab0e9789, 0x38b34ae5, 0xa1e38b93}
	k := binary.LittleEndian.Uint32(m.rest[4*i:]) * factors[i]
	return bits.RotateLeft32(k, 15+i) * factors[(i+1)%4]
}

// Sum returns the hash of what was written.
func (m *PackedHash) Sum() uint64 {
	h := m.h
	clear(m.rest[m.filled:])
	for i := range h {
		if m.filled > 0 {
			h[i] ^= m.mixed(i)
		}
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
