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

// BenchmarkBlockCosts measures the costs in cost.go: CPU/type/gemv or unpack.
func BenchmarkBlockCosts(b *testing.B) {
	const rows, cols = 16, 1024
	for _, feature := range Features() {
		for _, f := range ggml.Formats {
			data := blockData(rand.New(rand.NewPCG(1, 1)), f, rows*cols/f.Block, false)
			l, err := NewLinear(f.Type.Header(rows, cols), data, Options{CPU: feature})
			if err != nil {
				b.Fatal(err)
			}
			w, x, dst := NewWorkspace(nil), make([]float32, cols), make([]float32, rows)
			run := func(what string, part func()) {
				b.Run(fmt.Sprintf("%s/%s/%s", feature, f.Type, what), func(b *testing.B) {
					for b.Loop() {
						part()
					}
					b.ReportMetric(b.Elapsed().Seconds()*1e12/float64(b.N)/cols/rows, "ps/weight")
					b.ReportMetric(0, "ns/op")
				})
			}
			if l.gemv != nil {
				w.multiply(l, l.gemv, dst, x, 1)
				run("gemv", func() { w.multiplyRows(&w.workers[0], 0, l.panels) })
			}
			w.multiply(l, l.gemm, dst, x, 1)
			panel := &w.workers[0].panels[0]
			run("unpack", func() {
				for i := range l.reader.canonical() {
					l.reader.read(panel, l.data, i)
				}
			})
		}
	}
}
