package gqf

import (
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/crc32c"
)

func TestCombineCRC32C(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, 5000)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for _, cut := range []int{0, 1, 2, 15, 16, 17, 255, 256, 257, 4095, 4096, 4999, 5000} {
		if got := CombineCRC32C(crc32c.Checksum(b[:cut]), crc32c.Checksum(b[cut:]), int64(len(b)-cut)); got != crc32c.Checksum(b) {
			t.Errorf("cut at %d: %08x, want %08x", cut, got, crc32c.Checksum(b))
		}
	}
	// RFC 3720, B.4: 32 bytes of zeros.
	if got := crc32c.Checksum(make([]byte, 32)); got != 0x8A9136AA {
		t.Errorf("CRC32C of 32 zeros is %08x", got)
	}
}

// TestShiftFarZeros compares with doubling: twice n zeros are 2n zeros.
func TestShiftFarZeros(t *testing.T) {
	crc := crc32c.Checksum([]byte("gq"))
	for n := int64(1); n < 1<<61; n = 2*n + 1 {
		if twice := crcShift(crcShift(crc, n), n); twice != crcShift(crc, 2*n) {
			t.Fatalf("shift by %d twice differs from shift by %d", n, 2*n)
		}
	}
	if got, want := crcShift(rawCRC([]byte("gq")), 1000), rawCRC(append([]byte("gq"), make([]byte, 1000)...)); got != want {
		t.Errorf("1000 zeros: %08x, want %08x", got, want)
	}
}

func BenchmarkAddData(b *testing.B) {
	piece := make([]byte, 9<<10) // a panel of 2048 columns at 4 bits
	im := &Image{}
	h := header{dataOff: 0, dataLen: 1 << 30}
	h.sections[secChecksums].count = 1 << 10
	im.place(h)
	b.SetBytes(int64(len(piece)))
	for i := range b.N {
		im.AddData(int64(i%1000)<<18, piece)
	}
}
