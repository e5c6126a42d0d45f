package torchao

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// benchmarkPacker reports ns/weight of rows of 2048 columns.
func benchmarkPacker(b *testing.B, h packing.Header, f func(p packing.Packer, data []byte, panel *packing.Panel)) {
	h.Rows, h.Cols = 8, 2048
	p, err := New(h)
	if err != nil {
		b.Fatal(err)
	}
	m := randomMatrix(rand.New(rand.NewPCG(1, 2)), h)
	data := pack(b, h, m)
	panel := p.NewPanel()
	if e, ok := p.(*Embedding); ok {
		p, _ = e.testCompanions(b, 1)
	} else {
		p.UnpackPanel(panel, data[headerSize:])
	}
	for b.Loop() {
		f(p, data, panel)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(h.Rows*h.Cols), "ns/weight")
}

// benchmarkLayouts runs f on every layout and width.
func benchmarkLayouts(b *testing.B, f func(p packing.Packer, data []byte, panel *packing.Panel)) {
	for bits := uint8(1); bits <= 8; bits++ {
		h := packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: bits, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Group: 32}
		b.Run(fmt.Sprintf("linear/bits=%d", bits), func(b *testing.B) { benchmarkPacker(b, h, f) })
		if bits == 4 {
			h.ZeroKind = packing.ZeroInt8
			b.Run("linear/bits=4/zeros", func(b *testing.B) { benchmarkPacker(b, h, f) })
		}
	}
	for bits := uint8(1); bits <= 8; bits++ {
		h := packing.Header{Layout: packing.LayoutTorchAOEmbedding, Bits: bits, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Group: 32}
		b.Run(fmt.Sprintf("embedding/bits=%d", bits), func(b *testing.B) { benchmarkPacker(b, h, f) })
	}
	for _, tile := range testTiles {
		h := packing.Header{Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: tile, Group: 32}
		b.Run("kleidiai/tile="+tile.String(), func(b *testing.B) { benchmarkPacker(b, h, f) })
	}
}

func BenchmarkPackPanel(b *testing.B) {
	benchmarkLayouts(b, func(p packing.Packer, data []byte, panel *packing.Panel) {
		n := p.PanelBytes()
		for at := headerSize; at < len(data); at += n {
			p.PackPanel(data[at:at+n], panel)
		}
	})
}

func BenchmarkUnpackPanel(b *testing.B) {
	benchmarkLayouts(b, func(p packing.Packer, data []byte, panel *packing.Panel) {
		n := p.PanelBytes()
		for at := headerSize; at < len(data); at += n {
			p.UnpackPanel(panel, data[at:at+n])
		}
	})
}

func BenchmarkDequantizeRow(b *testing.B) {
	row := make([]float32, 2048)
	benchmarkLayouts(b, func(p packing.Packer, data []byte, _ *packing.Panel) {
		for r := range 8 {
			p.DequantizeRow(row, data, r)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	benchmarkLayouts(b, func(p packing.Packer, data []byte, _ *packing.Panel) {
		if err := check(p, data); err != nil {
			b.Fatal(err)
		}
	})
}
