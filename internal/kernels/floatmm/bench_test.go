package floatmm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lowbit-go/gq/packing"
)

// bench is a product whose panels are divided among threads, as package kernels does.
type bench struct {
	w       *Weights
	m       int
	dst     []float32
	packed  []float32
	scratch []Scratch
}

func newBench(s *Set, dtype packing.Dtype, rows, cols, m, threads int) *bench {
	b := &bench{w: s.New(dtype, rows, cols, nil), m: m, dst: make([]float32, m*rows), packed: make([]float32, s.XLen(m, cols)),
		scratch: make([]Scratch, threads)}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range b.packed {
		b.packed[i] = float32(rng.NormFloat64())
	}
	size := 2
	if dtype == packing.F32 {
		size = 4
	}
	data := make([]byte, rows*cols*size)
	for i := range data {
		data[i] = byte(i) & 0x3f // exponents of small numbers
	}
	b.w.Fill(&b.scratch[0], data, 0, b.w.Panels())
	return b
}

func (b *bench) run() {
	threads := len(b.scratch)
	step := b.w.set.Group
	groups := (b.w.Panels() + step - 1) / step
	var wg sync.WaitGroup
	for i := 1; i < threads; i++ {
		wg.Go(func() { b.part(groups*i/threads*step, groups*(i+1)/threads*step, i) })
	}
	b.part(0, groups/threads*step, 0)
	wg.Wait()
}

func (b *bench) part(first, last, thread int) {
	b.w.Mul(&b.scratch[thread], b.dst, b.packed, b.m, first, min(last, b.w.Panels()))
}

// BenchmarkGEMV multiplies one row with weights in a cache of 1 MB.
func BenchmarkGEMV(b *testing.B) {
	for _, dtype := range dtypes[:2] {
		for _, s := range sets(b) {
			b.Run(fmt.Sprintf("%s/%s", dtype, s.Feature), func(b *testing.B) {
				p := newBench(s, dtype, 128, 1024, 1, 1)
				for b.Loop() {
					p.run()
				}
				b.ReportMetric(float64(p.w.Bytes())*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GB/s")
			})
		}
	}
}

// BenchmarkGEMVMemory multiplies one row with 235 MB (float32) of weights that come from memory,
// and in turn searches as much memory for an absent byte with the assembly of package bytes. The
// share is the ratio of the two rates. It may exceed 1: four panels are four streams for the
// prefetcher.
func BenchmarkGEMVMemory(b *testing.B) {
	const rows, cols = 4096, 14336
	data := make([]byte, 4*rows*cols)
	for i := range data {
		data[i] = byte(i) & 0x3f // also the exponents of small numbers
	}
	for _, dtype := range dtypes[:2] {
		for _, threads := range []int{1, 2} {
			for _, s := range sets(b) {
				b.Run(fmt.Sprintf("%s/%d/%s", dtype, threads, s.Feature), func(b *testing.B) {
					if s == &generic {
						b.Skip("takes seconds")
					}
					p := newBench(s, dtype, rows, cols, 1, threads)
					var product, read time.Duration
					for b.Loop() {
						start := time.Now()
						p.run()
						middle := time.Now()
						scan(data, threads)
						product += middle.Sub(start)
						read += time.Since(middle)
					}
					rate := float64(p.w.Bytes()) * float64(b.N) / float64(product.Nanoseconds())
					memory := float64(len(data)) * float64(b.N) / float64(read.Nanoseconds())
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(rate, "GB/s")
					b.ReportMetric(memory, "GB/s-read")
					b.ReportMetric(rate/memory, "share")
				})
			}
		}
	}
}

func scan(data []byte, threads int) {
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			if bytes.IndexByte(data[len(data)/threads*i:len(data)/threads*(i+1)], 0xff) >= 0 {
				panic("found")
			}
		})
	}
	wg.Wait()
}

// BenchmarkGEMM multiplies many rows. GFLOP/s counts a multiply-add as two.
func BenchmarkGEMM(b *testing.B) {
	for _, dtype := range dtypes[:2] {
		for _, m := range []int{4, 8, 16, 128} {
			for _, s := range sets(b) {
				const rows, cols = 2048, 4096
				b.Run(fmt.Sprintf("%s/%d/%s", dtype, m, s.Feature), func(b *testing.B) {
					if s == &generic {
						b.Skip("takes seconds")
					}
					p := newBench(s, dtype, rows, cols, m, 1)
					for b.Loop() {
						p.run()
					}
					b.ReportMetric(2*rows*cols*float64(m)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
				})
			}
		}
	}
}

// BenchmarkRows multiplies with weights that are made on the way, here copied.
func BenchmarkRows(b *testing.B) {
	const rows, cols = 512, 4096
	weights := make([]float32, rows*cols)
	for i := range weights {
		weights[i] = float32(math.Sin(float64(i)))
	}
	src := &Source{Rows: rows, Cols: cols, Read: func(dst []float32, row int) { copy(dst, weights[row*cols:]) }}
	for _, m := range []int{1, 16, 128} {
		for _, s := range sets(b) {
			b.Run(fmt.Sprintf("%d/%s", m, s.Feature), func(b *testing.B) {
				if s == &generic && m > 1 {
					b.Skip("takes seconds")
				}
				x, dst := make([]float32, s.XLen(m, cols)), make([]float32, m*rows)
				var sc Scratch
				for b.Loop() {
					s.MulRows(&sc, dst, x, m, src, 0, src.Panels(s))
				}
				b.ReportMetric(2*rows*cols*float64(m)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
			})
		}
	}
}

// BenchmarkFill packs weights.
func BenchmarkFill(b *testing.B) {
	const rows, cols = 512, 4096
	for _, dtype := range dtypes {
		for _, s := range sets(b) {
			b.Run(fmt.Sprintf("%s/%s", dtype, s.Feature), func(b *testing.B) {
				w := s.New(dtype, rows, cols, nil)
				data := make([]byte, rows*cols*dtype.Bits()/8)
				var sc Scratch
				for b.Loop() {
					w.Fill(&sc, data, 0, w.Panels())
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows/cols, "ns/value")
			})
		}
	}
}
