package gguf

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// TestLowbit packs the codes and scales of Fields as a row of layout lowbit and as blocks: both
// must have the same weights, bit by bit.
func TestLowbit(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, kind := range []TensorType{Q1_0, Q2_0, Q4_0, Q5_0, Q8_0} {
		c, n := kind.codec(), kind.BlockWeights()
		bits := map[TensorType]uint8{Q1_0: 1, Q2_0: 2, Q4_0: 4, Q5_0: 5, Q8_0: 8}[kind]
		h := packing.Header{
			Layout: packing.LayoutLowbit, Bits: bits, Rows: 1, Cols: uint64(64 * n), Group: uint64(n), ScaleDtype: packing.ScaleF16,
			Tile: packing.Tile{NR: 8, KR: 16, SR: 2},
		}
		if kind == Q1_0 {
			h.Grid = packing.GridHalfStep
		}
		l, err := packing.NewLowbit(h)
		if err != nil {
			t.Fatal(err)
		}
		p := l.NewPanel()
		p.Rows = 1
		for i := range 64 * n {
			p.Codes[i] = int8(c.lo + r.IntN(c.hi-c.lo+1))
		}
		for i := range 64 {
			// Subnormal, normal, small, large.
			h := uint16(r.Uint32())&0x83ff | []uint16{0, 0x3c00, 0x0400, 0x7800}[i%4]
			if kind == Q1_0 && i%2 == 0 {
				h &^= 1 // half of the scale is stored
			}
			if h&0x7fff == 0 {
				h |= 2
			}
			p.Scales[i] = floats.F16ToF32(h)
		}
		data := make([]byte, l.Panels()*l.PanelBytes())
		l.PackPanel(data, p)
		want := make([]float32, 64*n)
		l.DequantizeRow(want, data, 0)

		blocks := make([]byte, kind.Size(int64(64*n)))
		if err := kind.Encode(blocks, Fields{Codes: p.Codes[:64*n], Scales: p.Scales[:64]}); err != nil {
			t.Fatal(kind, err)
		}
		got := make([]float32, 64*n)
		if err := kind.Decode(got, blocks); err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			// Q2_0 stores the negated code and scale, whose product is the same but for the sign of 0.
			if kind == Q2_0 && w == 0 {
				w = float32(math.Copysign(0, float64(got[i])))
			}
			if math.Float32bits(w) != math.Float32bits(got[i]) {
				t.Errorf("%s, weight %d: code %d, scale %v is %v in layout lowbit, %v in a block", kind, i, p.Codes[i], p.Scales[i/n], w, got[i])
				break
			}
		}
	}
}
