package packing

import (
	"math/rand/v2"
	"testing"
)

// TestStoredColumn compares StoredColumn with UnpackUnit.
func TestStoredColumn(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for bits := 1; bits <= 8; bits++ {
		unit, codes := make([]byte, 16*bits), make([]int8, 128)
		for i := range unit {
			unit[i] = byte(rng.Uint32())
		}
		UnpackUnit(bits, 128, codes, unit)
		for half := range 2 {
			var x [8]uint64
			StoredColumn(bits, &x, unit, half)
			for i, q := range codes {
				if i%16/8 != half {
					continue
				}
				want := uint8(q)
				if bits < 8 {
					want += 1 << (bits - 1)
				}
				if got := uint8(x[i/16] >> (8 * (i % 8))); got != want {
					t.Fatalf("%d bits: code %d is stored as %d, want %d", bits, i, got, want)
				}
			}
		}
	}
}

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
