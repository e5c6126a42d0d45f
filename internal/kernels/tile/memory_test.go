package tile

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// buffer is memory that a kernel writes to, with bytes on both sides that it must leave alone.
type buffer struct {
	all   []byte
	start int
	size  int
}

const margin = 128

func newBuffer(rng *rand.Rand, size int) *buffer {
	b := &buffer{all: make([]byte, size+2*margin), start: margin, size: size}
	for i := range b.all {
		b.all[i] = byte(rng.Uint32())
	}
	return b
}

func (b *buffer) bytes() []byte           { return b.all[b.start:][:b.size] }
func (b *buffer) pointer() unsafe.Pointer { return unsafe.Pointer(&b.all[b.start]) }

// checkMargins compares the bytes around the operand with the bytes before the kernel ran.
func (b *buffer) checkMargins(t *testing.T, before []byte) {
	t.Helper()
	for i, c := range b.all {
		if (i < b.start || i >= b.start+b.size) && c != before[i] {
			t.Fatalf("byte %d of a buffer of %d was written", i-b.start, b.size)
		}
	}
}
