package vec

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestDecodeBlocks decodes blocks with every F16 scale and compares with the definitions, computed
// in another way.
func TestDecodeBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, f := range []struct {
		name   string
		decode func(dst []float32, src []byte)
		size   int
		code   func(block []byte, i int) int
	}{
		{"nibbles", DecodeNibbles, 18, func(block []byte, i int) int { return int(block[2+i%16]>>(i/16*4)&15) - 8 }},
		{"bytes", DecodeBytes, 34, func(block []byte, i int) int { return int(int8(block[2+i])) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			src := make([]byte, f.size<<16)
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			for h := range 1 << 16 {
				binary.LittleEndian.PutUint16(src[f.size*h:], uint16(h))
			}
			asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
				dst := make([]float32, 32<<16)
				f.decode(dst, src)
				for i, got := range dst {
					h := i / 32
					d := float64(floats.F16ToF32(uint16(h)))
					want := math.Float32bits(float32(d * float64(f.code(src[f.size*h:], i%32)))) // exact
					if math.IsInf(d, 0) || math.IsNaN(d) {
						want = 0x7fc00000
					}
					if math.Float32bits(got) != want {
						t.Fatalf("scale %#04x, weight %d: %#x, want %#x", h, i%32, math.Float32bits(got), want)
					}
				}
			})
		})
	}
}

func TestDecodeBlocksInPlace(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for _, end := range asmtest.Ends {
			for blocks := range 4 {
				dst := asmtest.Place(t, end, make([]float32, 32*blocks))
				nibbles, bytes := asmtest.Place(t, end, make([]byte, 18*blocks)), asmtest.Place(t, end, make([]byte, 34*blocks))
				asmtest.NoFault(t, fmt.Sprint(end, ": DecodeNibbles of blocks: ", blocks), func() { DecodeNibbles(dst, nibbles) })
				asmtest.NoFault(t, fmt.Sprint(end, ": DecodeBytes of blocks: ", blocks), func() { DecodeBytes(dst, bytes) })
			}
		}
	})
}
