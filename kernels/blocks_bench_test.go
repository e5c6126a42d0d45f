package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/kernels/ggml"
)

// BenchmarkBlocks is BenchmarkBlocks/CPU/type/m, with a matrix of Llama-3.2-1B's feed-forward
// layer.
func BenchmarkBlocks(b *testing.B) {
	const rows, cols = 8192, 2048
	for _, feature := range Features() {
		for _, f := range ggml.Formats {
			for _, m := range []int{1, 512} {
				b.Run(fmt.Sprintf("%s/%s/%d", feature, f.Type, m), func(b *testing.B) {
					data := blockData(rand.New(rand.NewPCG(1, 1)), f, rows*cols/f.Block, false)
					l, err := NewLinear(f.Type.Header(rows, cols), data, Options{CPU: feature})
					if err != nil {
						b.Fatal(err)
					}
					benchOperator(b, l, m, len(data))
				})
			}
		}
	}
}
