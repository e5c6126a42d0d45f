package crc32c

import (
	"math/rand/v2"
	"testing"
)

func TestCombine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, 5000)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for _, cut := range []int{0, 1, 2, 15, 16, 17, 255, 256, 257, 4095, 4096, 4999, 5000} {
		if got := Combine(Checksum(b[:cut]), Checksum(b[cut:]), int64(len(b)-cut)); got != Checksum(b) {
			t.Errorf("cut at %d: %08x, want %08x", cut, got, Checksum(b))
		}
	}
	// RFC 3720, B.4: 32 bytes of zeros.
	if got := Checksum(make([]byte, 32)); got != 0x8A9136AA {
		t.Errorf("CRC32C of 32 zeros is %08x", got)
	}
}

// TestShiftFarZeros compares with doubling: twice n zeros are 2n zeros.
func TestShiftFarZeros(t *testing.T) {
	crc := Checksum([]byte("gq"))
	for n := int64(1); n < 1<<61; n = 2*n + 1 {
		if twice := Shift(Shift(crc, n), n); twice != Shift(crc, 2*n) {
			t.Fatalf("shift by %d twice differs from shift by %d", n, 2*n)
		}
	}
	if got, want := Shift(Register([]byte("gq")), 1000), Register(append([]byte("gq"), make([]byte, 1000)...)); got != want {
		t.Errorf("1000 zeros: %08x, want %08x", got, want)
	}
}
