package vec

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// allHalves is every bit pattern of two bytes, starting at an odd address if odd is 1.
func allHalves(odd int) []byte {
	b := make([]byte, odd+2<<16)[odd:]
	for h := range 1 << 16 {
		binary.LittleEndian.PutUint16(b[2*h:], uint16(h))
	}
	return b
}

func TestWidenBF16(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for odd := range 2 {
			dst := make([]float32, 1<<16)
			WidenBF16(dst, allHalves(odd))
			for h, v := range dst {
				if got := math.Float32bits(v); got != uint32(h)<<16 {
					t.Fatalf("BF16 %04x widened to %08x", h, got)
				}
			}
		}
	})
}

func TestWidenF16(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for odd := range 2 {
			dst := make([]float32, 1<<16)
			WidenF16(dst, allHalves(odd))
			for h, v := range dst {
				if got, want := math.Float32bits(v), f16Bits(uint32(h)); got != want {
					t.Fatalf("F16 %04x widened to %08x, want %08x", h, got, want)
				}
			}
		}
	})
}

// f16Bits is the definition of binary16, as the bits of the float32 with the same value.
func f16Bits(h uint32) uint32 {
	sign, exp, frac := h>>15, h>>10&31, h&0x3ff
	if exp == 31 {
		bits := sign<<31 | 0x7f800000 | frac<<13
		if frac != 0 {
			bits |= 1 << 22
		}
		return bits
	}
	v := math.Ldexp(float64(frac), -24)
	if exp != 0 {
		v = math.Ldexp(float64(1024+frac), int(exp)-25)
	}
	if sign != 0 {
		v = math.Copysign(v, -1)
	}
	return math.Float32bits(float32(v))
}

// TestWidenLengths checks that nothing outside the slices is written, for all tails.
func TestWidenLengths(t *testing.T) {
	src := allHalves(1)
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for _, f := range []struct {
			name string
			run  func([]float32, []byte)
			one  func(uint16) uint32
		}{
			{"WidenBF16", WidenBF16, func(h uint16) uint32 { return uint32(h) << 16 }},
			{"WidenF16", WidenF16, func(h uint16) uint32 { return f16Bits(uint32(h)) }},
		} {
			for n := range 70 {
				dst := make([]float32, n+32)
				f.run(dst[16:16+n], src[0x3000:0x3000+2*n])
				for i, v := range dst {
					want := uint32(0)
					if i >= 16 && i < 16+n {
						want = f.one(binary.LittleEndian.Uint16(src[0x3000+2*(i-16):]))
					}
					if got := math.Float32bits(v); got != want {
						t.Fatalf("%s of %d: value %d is %08x, want %08x", f.name, n, i-16, got, want)
					}
				}
			}
		}
	})
}
