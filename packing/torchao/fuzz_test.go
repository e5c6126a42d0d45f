package torchao

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// fuzzHeaders are the shapes that FuzzUnpack reads bytes as.
var fuzzHeaders = []packing.Header{
	{Layout: packing.LayoutTorchAOLinear, Bits: 4, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 8, Cols: 32, Group: 32},
	{Layout: packing.LayoutTorchAOLinear, Flags: packing.FlagBias, Bits: 3, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Tile: packing.DefaultTile, Rows: 3, Cols: 96, Group: 48},
	{Layout: packing.LayoutTorchAOLinear, Flags: packing.FlagPositiveScales, Bits: 8, ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 9, Cols: 48},
	{Layout: packing.LayoutTorchAOEmbedding, Bits: 5, ScaleDtype: packing.ScaleF32, ZeroKind: packing.ZeroInt8, Rows: 2, Cols: 224, Group: 32},
	{Layout: packing.LayoutTorchAOKleidiAI, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: 3, Cols: 64, Group: 32},
	{Layout: packing.LayoutTorchAOKleidiAI, Flags: packing.FlagBias, Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.Tile{NR: 8, KR: 8, SR: 2}, Rows: 10, Cols: 64},
}

// FuzzUnpack holds that any bytes can be read against a shape, that a row of
// them can, and that what Unpack accepts is what Pack makes of it.
func FuzzUnpack(f *testing.F) {
	for i, h := range fuzzHeaders {
		data, err := Pack(h, randomMatrix(rand.New(rand.NewPCG(1, uint64(i))), h))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
	}
	f.Fuzz(func(t *testing.T, shape uint8, data []byte) {
		h := fuzzHeaders[int(shape)%len(fuzzHeaders)]
		m, err := Unpack(h, data)
		if err == nil {
			again, err := Pack(h, m)
			if err != nil || !slices.Equal(again, data) {
				t.Fatalf("accepted what does not pack to it again, error %v", err)
			}
		}
		p, err := New(h)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) < HeaderSize+p.Panels()*p.PanelBytes() {
			return
		}
		if e, ok := p.(*Embedding); ok {
			p = e.testCompanions(t, 1)
		}
		row := make([]float32, h.Cols)
		p.DequantizeRow(row, data, int(h.Rows)-1)
		p.Bias(data, 0)
		panel, src := p.NewPanel(), data[HeaderSize:][:p.PanelBytes()]
		again, twice := make([]byte, len(src)), make([]byte, len(src))
		p.UnpackPanel(panel, src)
		panel.Rows = p.PanelRows(0)
		p.PackPanel(again, panel)
		// What was packed again is a fixed point, whatever it was before.
		p.UnpackPanel(panel, again)
		panel.Rows = p.PanelRows(0)
		if p.PackPanel(twice, panel); !slices.Equal(again, twice) {
			t.Fatal("packing is not the inverse of unpacking")
		}
	})
}

// FuzzPack holds that what Pack accepts, Unpack gives back.
func FuzzPack(f *testing.F) {
	for i := range fuzzHeaders {
		f.Add(uint8(i), uint64(i), int8(1), 0)
	}
	f.Fuzz(func(t *testing.T, shape uint8, seed uint64, code int8, at int) {
		h := fuzzHeaders[int(shape)%len(fuzzHeaders)]
		m := randomMatrix(rand.New(rand.NewPCG(seed, 1)), h)
		m.Codes[max(at, 0)%len(m.Codes)] = code
		inRange := int(code) >= -1<<(h.Bits-1) && int(code) < 1<<(h.Bits-1)
		data, err := Pack(h, m)
		if inRange != (err == nil) {
			t.Fatalf("code %d of %d bits: error %v", code, h.Bits, err)
		}
		if err == nil {
			checkMatrix(t, h, m, data)
		}
	})
}

// FuzzUnpackLUT does for types 4 and 5 what FuzzUnpack does.
func FuzzUnpackLUT(f *testing.F) {
	luts := vectorCases[lutCase](f, "linear_lut_type4", 8)
	groupwise := vectorCases[groupwiseCase](f, "groupwise_lut_type5", 10)
	for i, c := range luts {
		f.Add(uint8(i), []byte(c.Packed))
	}
	for i, c := range groupwise {
		f.Add(uint8(len(luts)+i), []byte(c.Packed))
	}
	f.Fuzz(func(t *testing.T, shape uint8, data []byte) {
		i := int(shape) % (len(luts) + len(groupwise))
		if i < len(luts) {
			s := luts[i].shape()
			w, err := UnpackLUT(s, data)
			checkDamage(t, -1, err, func() ([]byte, error) { return PackLUT(s, w) }, data)
			return
		}
		s := groupwise[i-len(luts)].shape()
		w, err := UnpackGroupwise(s, data)
		checkDamage(t, -1, err, func() ([]byte, error) { return PackGroupwise(s, w) }, data)
	})
}
