package kleidiai

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// benchmark reports ns/weight of one panel of 2048 columns for every layout and tile of KleidiAI,
// and for lowbit as a comparison.
func benchmark(b *testing.B, f func(l packing.Packer, data []byte, p *packing.Panel)) {
	run := func(h packing.Header, tile packing.Tile, l packing.Packer) {
		b.Run(fmt.Sprintf("%s/bits=%d/group=%d/tile=%s", h.Layout, h.Bits, h.Group, tile), func(b *testing.B) {
			p := randomPanel(rand.New(rand.NewPCG(1, 2)), l)
			data := make([]byte, l.PanelBytes())
			l.PackPanel(data, p)
			for b.Loop() {
				f(l, data, p)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(h.Rows*h.Cols), "ns/weight")
		})
	}
	for _, bits := range []uint8{2, 4, 8} {
		h := packing.Header{Layout: packing.LayoutLowbit, Bits: bits, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 8, Cols: 2048, Group: 32}.Canonical()
		l, err := packing.NewLowbit(h)
		if err != nil {
			b.Fatal(err)
		}
		run(h, h.Tile, l)
	}
	for _, h := range layoutHeaders {
		for _, h.Tile = range h.Layout.Tiles() {
			h.Rows, h.Cols = uint64(h.Tile.NR), 2048
			l, err := NewPacker(h)
			if err != nil {
				b.Fatal(err)
			}
			run(h, h.Tile, l)
		}
	}
}

func BenchmarkPackPanel(b *testing.B) {
	benchmark(b, func(l packing.Packer, data []byte, p *packing.Panel) { l.PackPanel(data, p) })
}

func BenchmarkUnpackPanel(b *testing.B) {
	benchmark(b, func(l packing.Packer, data []byte, p *packing.Panel) { l.UnpackPanel(p, data) })
}

func BenchmarkDequantizeRow(b *testing.B) {
	row := make([]float32, 2048)
	benchmark(b, func(l packing.Packer, data []byte, p *packing.Panel) {
		for r := range l.Header().Tile.NR {
			l.DequantizeRow(row, data, int(r))
		}
	})
}
