package packing

import (
	"math/rand/v2"
	"testing"
)

// TestOffsets compares the offsets with the positions of a panel's blocks, records and sums.
func TestOffsets(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, group := range []uint64{16, 32, 48, 0} {
		h := Header{Layout: LayoutLowbit, Bits: 8, ScaleDtype: ScaleF32, ZeroKind: ZeroInt8, Tile: Tile{4, 16, 2}, Rows: 4, Cols: 100, Group: group}
		l, err := NewLowbit(h)
		if err != nil {
			t.Fatal(err)
		}
		m := randomMatrix(rng, h)
		panel := m.pack(t, l)
		for b := range 4 {
			if got := int8(panel[l.BlockOffset(b)]); got != m.codes[32*b] {
				t.Errorf("group %d: block %d begins with %d, want %d", group, b, got, m.codes[32*b])
			}
		}
		for g := range l.Groups() {
			at := l.RecordOffset(g)
			if scale, zero := h.ScaleDtype.get(panel[at:]), int8(panel[at+4*4]); scale != m.scales[g] || zero != m.zeros[g] {
				t.Errorf("group %d: record %d has %v and %d, want %v and %d", group, g, scale, zero, m.scales[g], m.zeros[g])
			}
		}
		if got := ScaleF32.get(panel[l.TailOffset():]); got != l.Sum(panel, 0) {
			t.Errorf("group %d: the tail begins with %v, want %v", group, got, l.Sum(panel, 0))
		}
	}
}
