package packing

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// benchmarkLowbit reports ns/weight of one panel of 2048 columns.
func benchmarkLowbit(b *testing.B, h Header, f func(l *Lowbit, data []byte, p *Panel)) {
	h.Layout, h.Rows, h.Cols = LayoutLowbit, uint64(h.Tile.NR), 2048
	if h.ScaleDtype == ScaleNone {
		h.ScaleDtype = ScaleBF16
	}
	h = h.Canonical()
	l, err := NewLowbit(h)
	if err != nil {
		b.Fatal(err)
	}
	m := randomMatrix(rand.New(rand.NewPCG(1, 2)), h)
	data, p := m.pack(b, l), l.NewPanel()
	l.UnpackPanel(p, data)
	for b.Loop() {
		f(l, data, p)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(h.Rows*h.Cols), "ns/weight")
}

func BenchmarkPackPanel(b *testing.B) {
	run := func(name string, h Header) {
		b.Run(name, func(b *testing.B) {
			benchmarkLowbit(b, h, func(l *Lowbit, data []byte, p *Panel) { l.PackPanel(data, p) })
		})
	}
	for bits := uint8(1); bits <= 8; bits++ {
		run(fmt.Sprintf("bits=%d", bits), Header{Bits: bits, Group: 32, Tile: DefaultTile})
	}
	for _, bits := range []uint8{4, 8} {
		run(fmt.Sprintf("bits=%d/asymmetric", bits), Header{Bits: bits, Group: 32, Tile: DefaultTile, ZeroKind: ZeroInt8})
		run(fmt.Sprintf("bits=%d/group=16", bits), Header{Bits: bits, Group: 16, Tile: DefaultTile})
		run(fmt.Sprintf("bits=%d/tile=8x8x2", bits), Header{Bits: bits, Group: 32, Tile: Tile{8, 8, 2}})
		run(fmt.Sprintf("bits=%d/tile=4x16x2", bits), Header{Bits: bits, Group: 32, Tile: Tile{4, 16, 2}})
		run(fmt.Sprintf("bits=%d/tile=4x8x2", bits), Header{Bits: bits, Group: 32, Tile: Tile{4, 8, 2}})
	}
}

func BenchmarkUnpackPanel(b *testing.B) {
	for bits := uint8(1); bits <= 8; bits++ {
		b.Run(fmt.Sprintf("bits=%d", bits), func(b *testing.B) {
			benchmarkLowbit(b, Header{Bits: bits, Group: 32, Tile: DefaultTile}, func(l *Lowbit, data []byte, p *Panel) { l.UnpackPanel(p, data) })
		})
	}
}

func BenchmarkDequantizeRow(b *testing.B) {
	row := make([]float32, 2048)
	for _, bits := range []uint8{4, 8} {
		b.Run(fmt.Sprintf("bits=%d", bits), func(b *testing.B) {
			benchmarkLowbit(b, Header{Bits: bits, Group: 32, Tile: DefaultTile}, func(l *Lowbit, data []byte, _ *Panel) {
				for r := range 8 {
					l.DequantizeRow(row, data, r)
				}
			})
		})
	}
}

func BenchmarkCheckPanel(b *testing.B) {
	for _, bits := range []uint8{4, 8} {
		b.Run(fmt.Sprintf("bits=%d", bits), func(b *testing.B) {
			benchmarkLowbit(b, Header{Bits: bits, Group: 32, Tile: DefaultTile}, func(l *Lowbit, data []byte, _ *Panel) {
				if err := l.CheckPanel(0, data); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
