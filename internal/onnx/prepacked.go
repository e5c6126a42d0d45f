package onnx

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"strings"
)

// SetPrepacked says where ONNX Runtime finds the weights of a MatMulNBits node as its kernels read
// them: length bytes at an offset of the tensor's file, with a hash of [HashPacked]. It follows
// SetPlace. The tensor's comment makes the size of the message the same for every hash.
func (t *Tensor) SetPrepacked(hash uint64, offset, length int64) {
	digits := fmt.Sprint(hash)
	t.Doc = strings.Repeat(".", 21-len(digits)) // one more than the most digits
	t.External = append(t.External[:3:3], Pair{"prepacked_1", fmt.Sprintf("MatMulNBits+%s|%d;%d;0", digits, offset, length)})
}

// HashPacked computes the hash by which ONNX Runtime recognizes packed weights: two words of
// MurmurHash3_x86_128 (Austin Appleby, smhasher) with seed 0. ONNX Runtime clears three bits of the
// first (PrepackedWeights::GetHash).
func HashPacked(r io.Reader) (uint64, error) {
	var h [4]uint32
	var block [16]byte
	from, bytes := bufio.NewReaderSize(r, 1<<16), 0
	for n := len(block); n == len(block); bytes += n {
		var err error
		if n, err = io.ReadFull(from, block[:]); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return 0, err
		}
		clear(block[n:])
		for i := range h {
			h[i] ^= mixed(&block, i) // 0 behind the last byte
			if n == len(block) {
				h[i] = (bits.RotateLeft32(h[i], 19-2*i)+h[(i+1)%4])*5 + [4]uint32{0x561ccd1b, 0x0bcaa747, 0x96cd1c35, 0x32ac3b17}[i]
			}
		}
	}
	spread := func() {
		h[0] += h[1] + h[2] + h[3]
		for i := 1; i < 4; i++ {
			h[i] += h[0]
		}
	}
	for i := range h {
		h[i] ^= uint32(bytes)
	}
	spread()
	for i, v := range h {
		v = (v ^ v>>16) * 0x85ebca6b
		v = (v ^ v>>13) * 0xc2b2ae35
		h[i] = v ^ v>>16
	}
	spread()
	return uint64(h[0]&^7) + uint64(h[1])<<32, nil
}

// mixed is word i of a block as it is mixed into the hash.
func mixed(block *[16]byte, i int) uint32 {
	factors := [4]uint32{0x239b961b, 0xab0e9789, 0x38b34ae5, 0xa1e38b93}
	k := binary.LittleEndian.Uint32(block[4*i:]) * factors[i]
	return bits.RotateLeft32(k, 15+i) * factors[(i+1)%4]
}
