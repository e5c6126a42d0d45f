package gguf

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkDecode(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, kind := range allTypes(TensorType.Decodable) {
		b.Run(kind.String(), func(b *testing.B) {
			dst := make([]float32, 1<<16)
			src := make([]byte, kind.Size(int64(len(dst))))
			for i := range src {
				src[i] = byte(r.Uint32()) & 0x3f
			}
			b.SetBytes(int64(4 * len(dst)))
			for b.Loop() {
				if err := kind.Decode(dst, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, kind := range allTypes(TensorType.Encodable) {
		b.Run(kind.String(), func(b *testing.B) {
			const weights = 1 << 14
			src := randomBlocks(kind, weights/kind.BlockWeights(), r)
			var f Fields
			if err := kind.Unpack(&f, src); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(weights)
			for b.Loop() {
				if err := kind.Encode(src, f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
