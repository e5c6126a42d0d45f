package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// FuzzLinear compares all kernels of this machine with the reference: header bytes of any kind,
// weights and activations out of a seed and, where the layout lets them, out of the bytes
// themselves.
func FuzzLinear(f *testing.F) {
	for i, h := range someHeaders() {
		f.Add(uint8(h.Layout), h.Bits, uint8(h.ScaleDtype), uint8(h.ZeroKind), uint8(h.Grid), uint8(i), uint16(h.Group), uint16(h.Rows), uint16(h.Cols), uint8(1+i), uint64(i), []byte{})
	}
	f.Add(uint8(2), uint8(8), uint8(3), uint8(1), uint8(0), uint8(1), uint16(16), uint16(7), uint16(33), uint8(5), uint64(9), []byte{0xff, 0x7f, 0x80, 0})
	f.Fuzz(func(t *testing.T, layout, bits, dtype, zeros, grid, tile uint8, group, rows, cols uint16, m uint8, seed uint64, raw []byte) {
		h := packing.Header{
			Layout: packing.Layout(layout), Bits: bits, ScaleDtype: packing.ScaleDtype(dtype), ZeroKind: packing.ZeroKind(zeros), Grid: packing.Grid(grid),
			Rows: uint64(rows % 70), Cols: uint64(cols % 600), Group: uint64(group), Flags: packing.Flags(seed) & packing.FlagBias,
		}
		tiles := h.Layout.Tiles()
		if len(tiles) == 0 {
			return
		}
		h.Tile = tiles[int(tile)%len(tiles)]
		if h = h.Canonical(); h.Validate() != nil {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		p := newPayload(t, rng, h, contents(seed>>8%4))
		if !h.Layout.IsTorchAO() { // whose header and sums have to be right
			copy(p.data, raw)
		}
		rowsOfX := 1 + int(m%24)
		x := someRows(rng, rowsOfX, int(h.Cols))
		want := expected(t, p, x, rowsOfX)
		w := NewWorkspace(nil)
		for _, feature := range Features() {
			for name, l := range variants(t, p, feature) {
				check(t, fmt.Sprintf("%v, m %d, %s", p, rowsOfX, name), forward(t, name, w, l, x, rowsOfX), want, l.Rows())
			}
		}
	})
}
