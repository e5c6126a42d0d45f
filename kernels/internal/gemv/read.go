package gemv

import (
	"encoding/binary"

	"github.com/lowbit-go/gq/internal/cpu"
)

// readers are the implementations of ReadSum.
var readers = cpu.NewFamily("gemv: reading", readGeneric)

// ReadSum reads b as fast as this machine can, whatever the program is restricted to, and returns
// the sum of its little-endian words of 8 bytes. It is the rate with which kernels are compared
// whose packed weights come out of memory. len(b) must be a multiple of 256.
func ReadSum(b []byte) uint64 {
	if len(b)%256 != 0 {
		panic("gemv: ReadSum needs a length that is a multiple of 256")
	}
	if len(b) == 0 {
		return 0
	}
	return readers.For(cpu.Supported()).Code(b)
}

func readGeneric(b []byte) uint64 {
	var s0, s1, s2, s3 uint64
	for ; len(b) >= 32; b = b[32:] {
		w := (*[32]byte)(b)
		s0 += binary.LittleEndian.Uint64(w[:])
		s1 += binary.LittleEndian.Uint64(w[8:])
		s2 += binary.LittleEndian.Uint64(w[16:])
		s3 += binary.LittleEndian.Uint64(w[24:])
	}
	return s0 + s1 + s2 + s3
}
