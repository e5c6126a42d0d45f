package vec

import (
	"encoding/binary"
	"fmt"
	"math"
)

// WidenF32 reads the little-endian float32 values of src, bit by bit. len(src) is 4*len(dst). It
// copies in pieces of constant length, which the compiler does without bounds checks: 23 GB/s
// instead of 3, in the cache of an AMD EPYC.
func WidenF32(dst []float32, src []byte) {
	if len(src) != 4*len(dst) {
		panic(fmt.Sprintf("vec: %d bytes of float32 for %d values", len(src), len(dst)))
	}
	for len(dst) >= 8 && len(src) >= 32 {
		d, s := dst[:8], src[:32]
		d[0] = math.Float32frombits(binary.LittleEndian.Uint32(s[0:]))
		d[1] = math.Float32frombits(binary.LittleEndian.Uint32(s[4:]))
		d[2] = math.Float32frombits(binary.LittleEndian.Uint32(s[8:]))
		d[3] = math.Float32frombits(binary.LittleEndian.Uint32(s[12:]))
		d[4] = math.Float32frombits(binary.LittleEndian.Uint32(s[16:]))
		d[5] = math.Float32frombits(binary.LittleEndian.Uint32(s[20:]))
		d[6] = math.Float32frombits(binary.LittleEndian.Uint32(s[24:]))
		d[7] = math.Float32frombits(binary.LittleEndian.Uint32(s[28:]))
		dst, src = dst[8:], src[32:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}
