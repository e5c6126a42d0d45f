package floats

import (
	"math"
	"testing"
)

// TestRoundF16 rounds around every F16 number and between neighbours.
func TestRoundF16(t *testing.T) {
	for h := range 1 << 16 {
		u := math.Float32bits(F16ToF32(uint16(h)))
		for _, d := range []uint32{0, 1, ^uint32(0), 0xfff, 0x1000, 0x1001, 0x1fff} {
			v := math.Float32frombits(u + d)
			if got, want := math.Float32bits(RoundF16(v)), math.Float32bits(F16ToF32(F16FromF32(v))); got != want {
				t.Fatalf("RoundF16(%#x) is %#x, want %#x", u+d, got, want)
			}
		}
	}
}
