package tile

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/bitplane"
	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// someLanes are the ways in which panels of nr rows place lanes: the rows of 8x16x2 together, and
// lanes far apart.
func someLanes(nr int) []Lanes {
	chunk := int64(8 * nr)
	rows := Lanes{Step: [2]int64{chunk, 3 * chunk}}
	far := Lanes{Step: [2]int64{4 * chunk, 4 * chunk}}
	for j := range int64(8) {
		rows.Lane[j] = j%2*2*chunk + j/2*16
		far.Lane[j] = j%2*2*chunk + j/4*chunk + j/2%2*16
	}
	return []Lanes{rows, far}
}

func TestUnpack(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		rng := rand.New(rand.NewPCG(1, uint64(bits)))
		half := uint8(1 << (bits - 1))
		for _, c := range []struct{ units, run, gap int }{
			{1, 0, 0}, {2, 0, 9}, {3, 3, 5}, {8, 0, 0}, {17, 0, 0}, {4, 2, 16}, {6, 1, 24}, {12, 4, 12}, {9, 3, 1},
		} {
			units, runs := c.units, 1
			if c.run > 0 {
				runs = c.units / c.run
			}
			src := asmtest.AtPageEnd(t, make([]byte, 16*bits*units+(runs-1)*c.gap))
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			for i, lanes := range someLanes(s.NR) {
				lanes.Run, lanes.Gap = int64(c.run), int64(c.gap)
				for _, place := range [][2]uint8{{0, 0}, {0, half}, {half, half}, {half, 0}, {0x5a, 0xc3}} {
					lanes.Flip, lanes.Sub = place[0], place[1]
					got := newBuffer(rng, units*4*8*s.NR) // at most 4 chunks a unit
					before := slices.Clone(got.all)
					want := slices.Clone(got.bytes())
					modelUnpack(want, src, bits, units, &lanes)
					s.Unpack((*byte)(got.pointer()), &src[0], units, &lanes)
					if !slices.Equal(got.bytes(), want) {
						t.Fatalf("%+v, lanes %d, flip %#x, sub %#x: got other bytes", c, i, lanes.Flip, lanes.Sub)
					}
					got.checkMargins(t, before)
				}
			}
		}
	})
}

// modelUnpack is Set.Unpack by bitplane.UnpackUnit.
func modelUnpack(dst, src []byte, bits, units int, lanes *Lanes) {
	var codes [128]int8
	at := 0
	for u := range units {
		if u > 0 && lanes.Run > 0 && u%int(lanes.Run) == 0 {
			src = src[lanes.Gap:]
		}
		bitplane.UnpackUnit(bits, 128, codes[:], src[:16*bits])
		src = src[16*bits:]
		for i, q := range codes {
			field := uint8(q)
			if bits < 8 {
				field += 1 << (bits - 1)
			}
			dst[at+int(lanes.Lane[i/16])+i%16] = (field ^ lanes.Flip) - lanes.Sub
		}
		at += int(lanes.Step[u%2])
	}
}

func TestZip(t *testing.T) {
	eachSet(t, func(t *testing.T, s Set, bits int) {
		rng := rand.New(rand.NewPCG(2, 2))
		for _, n := range []int{1, 2, 3, 4, 5, 31} {
			b := newBuffer(rng, 32*n)
			before := slices.Clone(b.all)
			s.Zip((*byte)(b.pointer()), n)
			for i := range n {
				for j := range 8 {
					from := margin + 32*i + 4*(j/2+j%2*4)
					if got := b.bytes()[32*i+4*j:][:4]; !slices.Equal(got, before[from:][:4]) {
						t.Fatalf("n %d: run %d of 32 bytes number %d is %v, want %v", n, j, i, got, before[from:][:4])
					}
				}
			}
			b.checkMargins(t, before)
			if s.Unzip == nil {
				continue
			}
			if s.Unzip((*byte)(b.pointer()), n); !slices.Equal(b.all, before) {
				t.Fatalf("n %d: Unzip does not restore what Zip changed", n)
			}
		}
	})
}
