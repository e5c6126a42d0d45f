package vec

import (
	"encoding/binary"
	"fmt"

	"github.com/lowbit-go/gq/internal/floats"
)

const (
	codeBlock   = 32              // codes of a block
	nibbleBytes = 2 + codeBlock/2 // bytes of a block of DecodeNibbles
	byteBytes   = 2 + codeBlock   // bytes of a block of DecodeBytes
	decodedNaN  = 0x7fc00000      // bits of the weights of a block without a finite scale
)

// DecodeNibbles decodes blocks of 32 codes of 4 bits: an F16 scale d and 16 bytes v, little-endian.
// The weights of a block are float32(d*(v&15 - 8)) of each byte, then float32(d*(v>>4 - 8)) of each
// byte, or the NaN 0x7fc00000 if d is not finite.
func DecodeNibbles(dst []float32, src []byte) {
	checkBlocks(dst, src, nibbleBytes)
	decodeNibbles(dst, src)
}

// DecodeBytes decodes blocks of 32 codes of 8 bits: an F16 scale d and the codes q. The weights are
// float32(d*q), or NaN as in DecodeNibbles.
func DecodeBytes(dst []float32, src []byte) {
	checkBlocks(dst, src, byteBytes)
	decodeBytes(dst, src)
}

func checkBlocks(dst []float32, src []byte, size int) {
	if len(dst)%codeBlock != 0 || len(src) != len(dst)/codeBlock*size {
		panic(fmt.Sprintf("vec: %d weights of %d bytes in blocks of %d", len(dst), len(src), size))
	}
}

func decodeNibblesGeneric(dst []float32, src []byte) {
	for ; len(src) >= nibbleBytes; dst, src = dst[codeBlock:], src[nibbleBytes:] {
		d := blockScale(src)
		var weights [16]float32 // looking up takes half the time
		for i := range weights {
			weights[i] = float32(d * float32(i-8))
		}
		low, high := dst[:16], dst[16:32]
		for i, v := range src[2:18] {
			low[i], high[i] = weights[v&15], weights[v>>4]
		}
	}
}

func decodeBytesGeneric(dst []float32, src []byte) {
	for ; len(src) >= byteBytes; dst, src = dst[codeBlock:], src[byteBytes:] {
		d, out := blockScale(src), dst[:codeBlock]
		for i, v := range src[2:34] {
			out[i] = float32(d * float32(int8(v)))
		}
	}
}

// blockScale is the scale of a block.
func blockScale(src []byte) float32 {
	return floats.FiniteOrNaN(floats.F16ToF32(binary.LittleEndian.Uint16(src)))
}
