package embedding

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// bytesOf are the bytes of parts, one behind the other but each part at a
// multiple of LineBytes.
func bytesOf(p Parts) []*byte {
	var all []*byte
	for _, part := range [][]byte{p.Data, p.Scales, p.Zeros} {
		for len(all)%LineBytes != 0 {
			all = append(all, nil)
		}
		for i := range part {
			all = append(all, &part[i])
		}
	}
	return all
}

// TestFootprint changes every byte of small tables, one at a time, and demands
// that exactly as many of them matter to a row as Footprint says, in as many cache
// lines. Then it replaces all others at once, which must change nothing.
func TestFootprint(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, h := range headers(11) {
		e := newExample(t, wholeBlocks(h))
		table, all := e.table(t), bytesOf(e.parts)
		row := make([]float32, table.Cols())
		for _, id := range []int{0, 6, 10} {
			want := e.weights(id)
			changes := func() bool {
				if err := table.Lookup(row, id); err != nil {
					t.Fatal(err)
				}
				return !sameBits(row, want)
			}
			matters := make([]bool, len(all))
			counted, lines := 0, map[int]bool{}
			for i, b := range all {
				for _, mask := range []byte{0xff, 1, 0x10, 0x80} {
					if b == nil || matters[i] {
						continue
					}
					*b ^= mask
					matters[i] = changes()
					*b ^= mask
				}
				if matters[i] {
					counted++
					lines[i/LineBytes] = true
				}
			}
			if got, err := table.Footprint(id); err != nil || got != (Footprint{counted, len(lines)}) {
				t.Errorf("%s: row %d: footprint %+v, %v; by experiment %d bytes in %d lines", e.name, id, got, err, counted, len(lines))
			}
			for range 3 {
				saved := make([]byte, len(all))
				for i, b := range all {
					if b != nil && !matters[i] {
						saved[i], *b = *b, byte(rng.Uint32())
					}
				}
				if changes() {
					t.Errorf("%s: row %d depends on bytes that hold nothing of it", e.name, id)
				}
				for i, b := range all {
					if b != nil && !matters[i] {
						*b = saved[i]
					}
				}
			}
		}
	}
}

// wholeBlocks returns h with its columns rounded up to 32 where the layout does
// that to what it stores: the same geometry, with columns in place of padding.
func wholeBlocks(h packing.Header) packing.Header {
	if h.Layout == packing.LayoutLowbit || h.Layout.IsKleidiAI() {
		h.Cols = (h.Cols + 31) / 32 * 32
	}
	return h.Canonical()
}

// TestFootprintOfPadding holds that codes past the last column count as codes:
// a row is read 32 columns at a time.
func TestFootprintOfPadding(t *testing.T) {
	ragged := 0
	for _, h := range headers(11) {
		whole := wholeBlocks(h)
		if whole.Cols == h.Cols {
			continue
		}
		ragged++
		for id := range 11 {
			got, err := newExample(t, h).table(t).Footprint(id)
			if want, _ := newExample(t, whole).table(t).Footprint(id); err != nil || got != want {
				t.Errorf("%+v: row %d: footprint %+v, %v; of whole blocks %+v", h, id, got, err, want)
			}
		}
	}
	if ragged < 100 {
		t.Errorf("%d tables end within a block, want more", ragged)
	}
}

// TestFootprintOfLlama holds the geometry to sizes worked out by hand, for the
// table of Llama-3.2-1B.
func TestFootprintOfLlama(t *testing.T) {
	const rows, cols = 128256, 2048
	base := packing.Header{Bits: 4, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: rows, Cols: cols, Group: 32}
	lowbit, torchAO := base, base
	lowbit.Layout = packing.LayoutLowbit
	torchAO.Layout, torchAO.ScaleDtype = packing.LayoutTorchAOLinear, packing.ScaleF32
	for _, c := range []struct {
		h     packing.Header
		size  int64
		bytes int
	}{
		{lowbit.Canonical(), rows / 8 * (64*(128+16) + 64), 1024 + 64*2},
		{torchAO, 64 + rows/8*64*(128+64), 2048 + 64*4}, // its bytes hold codes of two rows each
	} {
		size, err := c.h.DataSize()
		if err != nil || size != c.size {
			t.Errorf("%s: %d bytes, %v, want %d", c.h.Layout, size, err, c.size)
		}
		table := &Table{h: c.h, rows: rows, cols: cols}
		for _, id := range []int{0, 5, rows - 1} {
			if f, err := table.Footprint(id); err != nil || f.Bytes != c.bytes {
				t.Errorf("%s: row %d: %+v, %v, want %d bytes", c.h.Layout, id, f, err, c.bytes)
			}
		}
	}
}

// FuzzTable holds that a table of any bytes can be read, that Footprint stays
// within them, and that nothing else matters to a row.
func FuzzTable(f *testing.F) {
	list := headers(9)
	for _, h := range list {
		e := newExample(f, h)
		f.Add(h.Append(nil), e.parts.Data, e.parts.Scales, e.parts.Zeros, 8)
	}
	f.Fuzz(func(t *testing.T, header, data, scales, zeros []byte, id int) {
		h, err := packing.ParseHeader(header)
		if err != nil { // make another header of the bytes
			if len(header) < 6 {
				return
			}
			h = list[int(header[0])%len(list)]
			h.Rows, h.Cols, h.Group = uint64(header[1]), uint64(header[2])*16, uint64(header[3])*16
			if header[4]&1 != 0 {
				h.Bits = header[5]
			}
			h = h.Canonical()
		}
		if size, err := h.DataSize(); err != nil || size > 1<<16 {
			return
		} else if h.Validate() == nil { // cut or repeat the data to the size
			data = append(slices.Clone(data), make([]byte, size)...)[:size]
			n := int(h.Rows * h.Groups())
			scales = append(slices.Clone(scales), make([]byte, n*h.ScaleDtype.Bytes())...)[:n*h.ScaleDtype.Bytes()]
			zeros = append(slices.Clone(zeros), make([]byte, n)...)[:n]
		}
		if h.Layout != packing.LayoutTorchAOEmbedding && h.ZeroKind == packing.ZeroNone {
			zeros = nil
		}
		table, err := New(h, Parts{data, scales, zeros})
		if err != nil || table.Rows() == 0 {
			return
		}
		id = int(uint(id) % uint(table.Rows()))
		want, got := make([]float32, table.Cols()), make([]float32, table.Cols())
		if err := table.Lookup(want, id); err != nil {
			t.Fatal(err)
		}
		parts := [][]byte{data, scales, zeros}
		others := [][]byte{make([]byte, len(data)), make([]byte, len(scales)), make([]byte, len(zeros))}
		for i := range others {
			for j := range others[i] {
				others[i][j] = ^parts[i][j]
			}
		}
		for _, s := range table.spans(id) {
			copy(others[s.part][s.start:s.start+s.bytes], parts[s.part][s.start:])
		}
		other, err := New(h, Parts{others[0], others[1], others[2]})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Lookup(got, id); err != nil || !sameBits(got, want) {
			t.Fatalf("%+v: row %d depends on bytes outside of its footprint (%v)", h, id, err)
		}
	})
}
