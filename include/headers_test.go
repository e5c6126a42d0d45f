//go:build unix

package include_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// onlyBits has the layouts with a single width of codes, and this width.
var onlyBits = map[packing.Layout]uint8{
	packing.LayoutQSI4CXP: 4, packing.LayoutQSI4C32PF16: 4, packing.LayoutQSI8CXP: 8,
	packing.LayoutQAI4C32P: 4, packing.LayoutQSU2CXP: 2, packing.LayoutTorchAOKleidiAI: 4,
}

// randomHeader returns 64 bytes in which most fields of a packed header are valid.
func randomHeader(r *rand.Rand) []byte {
	pick := func(list ...uint64) uint64 { return list[r.IntN(len(list))] }
	l := packing.Layouts[r.IntN(len(packing.Layouts))]
	h := packing.Header{Layout: l, Rows: 1 + r.Uint64N(300), Cols: pick(1, 2, 4, 16) * (1 + r.Uint64N(100))}
	if l == packing.LayoutPlain {
		h.Dtype = packing.Dtype(r.IntN(24))
		h.Rows, h.Cols = h.Rows-1, h.Cols-1
	} else {
		h = layout(l, h.Rows, h.Cols, 0, uint8(pick(1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 8)))
		if bits, ok := onlyBits[l]; ok && r.IntN(4) > 0 {
			h.Bits = bits
		}
		if tiles := l.Tiles(); len(tiles) > 0 {
			h.Tile = tiles[r.IntN(len(tiles))]
		}
		if r.IntN(2) == 0 {
			h.Cols = 32 * (1 + r.Uint64N(60))
		}
		h.Group = pick(0, 0, 0, 16, 32, 32, 48, 64, 96, h.Cols)
		if r.IntN(4) == 0 {
			h.ScaleDtype = packing.ScaleDtype(1 + r.IntN(3))
		}
		if r.IntN(4) == 0 {
			h.ZeroKind = packing.ZeroKind(r.IntN(4))
		}
		if r.IntN(3) == 0 {
			h.Flags = packing.Flags(r.IntN(8))
		}
		h.Flags &^= packing.FlagQSI4C32P
		if r.IntN(4) > 0 {
			h = h.Canonical()
		}
		if r.IntN(8) == 0 {
			h.Grid = packing.GridHalfStep
		}
	}
	if r.IntN(6) == 0 {
		h.Rows = edges(r, h.Rows)
	}
	if r.IntN(6) == 0 {
		h.Cols = edges(r, h.Cols)
	}
	if r.IntN(12) == 0 {
		h.Group = edges(r, h.Group)
	}
	var size uint64
	if n, err := h.DataSize(); err == nil {
		size = uint64(n)
	}
	if r.IntN(10) == 0 {
		size = edges(r, size)
	}
	b := rawHeader(h, size)
	if r.IntN(6) == 0 {
		b[r.IntN(60)] = byte(edges(r, 4))
		le.PutUint32(b[60:], crc(b[:60]))
	}
	if r.IntN(50) == 0 {
		b[r.IntN(64)] ^= 1 << r.IntN(8)
	}
	return b
}

// rawHeader is h, valid or not, as 64 bytes.
func rawHeader(h packing.Header, size uint64) []byte {
	b := []byte{'G', 'Q', 'P', 'K', 1, 0, byte(h.Layout), byte(h.Flags), h.Bits, byte(h.Grid), byte(h.ScaleDtype), byte(h.ZeroKind), h.Tile.NR, h.Tile.KR, h.Tile.SR, byte(h.Dtype)}
	for _, v := range []uint64{h.Rows, h.Cols, h.Group, size} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, make([]byte, 12)...)
	return le.AppendUint32(b, crc(b))
}

// TestPackedHeaders compares gqf_packed_read with packing.ParseHeader: the fields that each layout
// allows, and the sizes of data.
func TestPackedHeaders(t *testing.T) {
	for _, test := range []struct {
		toolchain
		n int
	}{{sanitized, 20_000}, {cxx, 5000}, {arm64, 5000}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			run := test.compile(t, driver)
			r := rand.New(rand.NewPCG(3, 4))
			var input []byte
			var want []string
			valid := map[packing.Layout]int{}
			for i := range test.n {
				b := randomHeader(r)
				if i < 8*9 { // TorchAO's sums of int32: just short enough, and not
					h := packing.Header{Layout: packing.LayoutTorchAOLinear, Bits: uint8(1 + i/9), ScaleDtype: packing.ScaleF32, Tile: packing.DefaultTile, Rows: 9}
					h.Group = 1<<(31-i/9) - 16 + 16*uint64(i%3)
					h.Cols = h.Group * uint64(1+i/3%3)
					if i/3%3 == 0 {
						h.Group = 0
					}
					size, err := h.DataSize()
					if err != nil {
						t.Fatal(err)
					}
					b = rawHeader(h, uint64(size))
				}
				input = append(input, b...)
				h, err := packing.ParseHeader(b)
				if err == nil {
					want = append(want, "0"+dumpHeader(h))
					valid[h.Layout]++
				} else if _, ok := errors.AsType[*packing.UnsupportedError](err); ok {
					want = append(want, "2")
				} else {
					want = append(want, "1")
				}
			}
			out, err := run(input, "headers")
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			if len(got) != len(want) {
				t.Fatalf("%d lines for %d headers", len(got), len(want))
			}
			wrong := 0
			for i := range got {
				if got[i] != want[i] {
					if wrong++; wrong < 10 {
						t.Errorf("% x: C says %s, Go %s", input[64*i:64*i+64], got[i], want[i])
					}
				}
			}
			t.Logf("valid of %d: %v", test.n, valid)
			for _, l := range packing.Layouts {
				if valid[l] < test.n/400 {
					t.Errorf("%d valid headers of %s", valid[l], l)
				}
			}
		})
	}
}
