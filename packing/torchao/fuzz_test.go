package torchao

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// fuzzHeaders are the shapes that FuzzUnpack tries.
var fuzzHeaders = []packing.Header{
	{Layout: packing.LayoutTorchAOLinear, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 8, Cols: 32, Group: 32},
	{Layout: packing.LayoutTorchAOLinear, Flags: packing.FlagBias, Bits: 3, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile, Rows: 3, Cols: 96, Group: 48},
	{Layout: packing.LayoutTorchAOLinear, Flags: packing.FlagPositiveScales, Bits: 8, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 9, Cols: 48},
	{Layout: packing.LayoutTorchAOEmbedding, Bits: 5, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Rows: 2, Cols: 224, Group: 32},
	{Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 3, Cols: 64, Group: 32},
	{Layout: packing.LayoutTorchAOKleidiAI, Flags: packing.FlagBias, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.Tile{NR: 8, KR: 8, SR: 2}, Rows: 10, Cols: 64},
}

// FuzzUnpack tests that panels and rows can be read from any bytes, and that packing an unpacked
// panel that CheckPanel accepts gives the same bytes.
func FuzzUnpack(f *testing.F) {
	for i, h := range fuzzHeaders {
		f.Add(uint8(i), pack(f, h, randomMatrix(rand.New(rand.NewPCG(1, uint64(i))), h)))
	}
	f.Fuzz(func(t *testing.T, shape uint8, data []byte) {
		h := fuzzHeaders[int(shape)%len(fuzzHeaders)]
		p, err := New(h)
		if err != nil {
			t.Fatal(err)
		}
		if check(p, data) == nil && !slices.Equal(pack(t, h, unpack(p, data)), data) {
			t.Fatal("accepted what does not pack to it again")
		}
		if len(data) < headerSize+p.Panels()*p.PanelBytes() {
			return
		}
		if e, ok := p.(*Embedding); ok {
			p, _ = e.testCompanions(t, 1)
		}
		row := make([]float32, h.Cols)
		p.DequantizeRow(row, data, int(h.Rows)-1)
		p.Bias(data, 0)
		panel, src := p.NewPanel(), data[headerSize:][:p.PanelBytes()]
		again, twice := make([]byte, len(src)), make([]byte, len(src))
		p.UnpackPanel(panel, src)
		panel.Rows = p.PanelRows(0)
		p.PackPanel(again, panel)
		// Packing again is idempotent, whatever the bytes were.
		p.UnpackPanel(panel, again)
		panel.Rows = p.PanelRows(0)
		if p.PackPanel(twice, panel); !slices.Equal(again, twice) {
			t.Fatal("packing is not the inverse of unpacking")
		}
	})
}

// FuzzPack tests that unpacking a packed matrix gives the matrix back.
func FuzzPack(f *testing.F) {
	for i := range fuzzHeaders {
		f.Add(uint8(i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, shape uint8, seed uint64) {
		h := fuzzHeaders[int(shape)%len(fuzzHeaders)]
		m := randomMatrix(rand.New(rand.NewPCG(seed, 1)), h)
		checkMatrix(t, h, m, pack(t, h, m))
	})
}
