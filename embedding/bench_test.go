package embedding

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// llama is the header of Llama-3.2-1B's table.
func llama(h packing.Header) packing.Header {
	h.Rows, h.Cols = 128256, 2048
	return h.Canonical()
}

// llamaTables are that table in the layouts that share it with the head, and in
// TorchAO's layout for tables alone.
var llamaTables = []packing.Header{
	llama(packing.Header{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Group: 32}),
	llama(packing.Header{Layout: packing.LayoutLowbit, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.Tile{NR: 8, KR: 8, SR: 2}, Group: 32}),
	llama(packing.Header{Layout: packing.LayoutLowbit, Bits: 8, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Group: 64}),
	llama(packing.Header{Layout: packing.LayoutQSI4C32PF16, Bits: 4, ScaleDtype: packing.ScaleF16, Tile: packing.DefaultTile, Group: 32}),
	llama(packing.Header{Layout: packing.LayoutQAI4C32P, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroF32, Tile: packing.Tile{NR: 4, KR: 16, SR: 2}, Group: 32}),
	llama(packing.Header{Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32, Tile: packing.Tile{NR: 4, KR: 8, SR: 1}}),
	llama(packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Group: 32}),
	llama(packing.Header{Layout: packing.LayoutTorchAOEmbedding, Bits: 4, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Group: 32}),
}

// largeTable repeats 8 rows until the table is full.
func largeTable(b *testing.B, h packing.Header) (table *Table, bytes int) {
	small := h
	small.Rows = 8
	e := newExample(b, small)
	size, err := h.DataSize()
	if err != nil {
		b.Fatal(err)
	}
	repeat := func(first []byte, prefix int, size int64) []byte {
		all := make([]byte, size)
		for at := copy(all, first[:prefix]); at < len(all); {
			at += copy(all[at:], first[prefix:])
		}
		return all
	}
	prefix, n := 0, int64(h.Rows/small.Rows)
	if h.Layout.IsTorchAO() {
		prefix = 64 // TorchAO's header
	}
	parts := Parts{
		Data:   repeat(e.parts.Data, prefix, size),
		Scales: repeat(e.parts.Scales, 0, n*int64(len(e.parts.Scales))),
		Zeros:  repeat(e.parts.Zeros, 0, n*int64(len(e.parts.Zeros))),
	}
	table, err = New(h, parts)
	if err != nil {
		b.Fatal(err)
	}
	return table, len(parts.Data) + len(parts.Scales) + len(parts.Zeros)
}

// BenchmarkLookup looks up single rows of Llama-3.2-1B's embedding: cold are random ids over all
// rows, which no cache holds; warm are the same 4 rows again and again. It reports the size of the
// embedding and the bytes that a lookup reads.
func BenchmarkLookup(b *testing.B) {
	for _, h := range llamaTables {
		b.Run(fmt.Sprintf("%s/bits=%d/tile=%s", h.Layout, h.Bits, h.Tile), func(b *testing.B) {
			table, bytes := largeTable(b, h)
			rng := rand.New(rand.NewPCG(1, 2))
			ids := make([]int, 1<<16)
			for i := range ids {
				ids[i] = rng.IntN(table.Rows())
			}
			run := func(name string, ids []int) {
				b.Run(name, func(b *testing.B) {
					row, i := make([]float32, table.Cols()), 0
					for b.Loop() {
						if err := table.Lookup(row, ids[i%len(ids)]); err != nil {
							b.Fatal(err)
						}
						i++
					}
					b.ReportMetric(float64(bytes)/1e6, "MB/table")
				})
			}
			run("cold", ids)
			run("warm", ids[:4])
		})
	}
}
