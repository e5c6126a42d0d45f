package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/kernels/tile"
	"github.com/lowbit-go/gq/internal/test/asmtest"
	"github.com/lowbit-go/gq/packing/layouts"

	"github.com/lowbit-go/gq/packing"
)

// TestUnpackings holds that the calls of Unpack find every unit of every run, and that the table of
// lanes, which repeats after two units, places its lanes where the layout has them.
func TestUnpackings(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	allHeaders(rng, func(_ int, h packing.Header) {
		f, err := newPanelLayout(h)
		if err != nil {
			t.Fatal(err)
		}
		unit := 16 * f.bits
		for _, nr := range []int{8, 16} {
			found := map[int][8]int{} // the lanes of each unit by its place in the packed panel
			for _, c := range f.unpackings(nr, 0) {
				at, to, run := c.at, c.to, int(c.lanes.Run)
				for u := range c.units {
					if u > 0 && run > 0 && u%run == 0 {
						at += int(c.lanes.Gap)
					}
					var lanes [8]int
					for j := range lanes {
						lanes[j] = to + int(c.lanes.Lane[j])
					}
					found[at] = lanes
					at, to = at+unit, to+int(c.lanes.Step[u%2])
				}
			}
			n := 0
			for _, run := range f.runs {
				for u := range run.units {
					var want [8]int
					for j := range want {
						row, col := f.place(8*u + j)
						want[j] = (run.col+col)/8*8*nr + 8*row
						if f.width == 4 {
							want[j] += col % 8 / 4 * 16
						}
						if run.col+col >= f.stored {
							t.Fatalf("%+v: lane %d of unit %d is in column %d", h, j, u, run.col+col)
						}
					}
					if got := found[run.at+u*unit]; got != want {
						t.Fatalf("%+v: panels of %d rows, run %+v, unit %d: lanes at %v, want %v", h, nr, run, u, got, want)
					}
					n++
				}
			}
			if len(found) != n {
				t.Fatalf("%+v: %d units unpacked of %d", h, len(found), n)
			}
			if f.groups > 2 && f.group%32 == 0 && f.header.Layout != packing.LayoutQSI4C32PF16 && len(f.unpackings(nr, 0)) > 2 {
				t.Errorf("%+v: %d calls for groups of whole blocks", h, len(f.unpackings(nr, 0)))
			}
		}
	})
}

// TestPanel holds every Set's unpacked panels to the layout's packer: codes, scales, zero points
// and biases.
func TestPanel(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	allHeaders(rng, func(n int, h packing.Header) {
		if testing.Short() && n%11 != 0 {
			return
		}
		p := newPayload(t, rng, h, contents(rng.IntN(3)))
		f, err := newPanelLayout(h)
		if err != nil {
			t.Fatal(err)
		}
		packer, err := layouts.New(h)
		if err != nil {
			t.Fatal(err)
		}
		bits := f.bits
		if f.half {
			bits++
		}
		for _, i := range asmtest.Implementations(tile.Sets) {
			set, feature := i.Code.Set(bits), i.Feature
			r := newReader(f, set)
			var got panel
			got.grow(&r)
			for i := range r.canonical() {
				for j := range got.codes {
					got.codes[j] = 0xee // codes of the panel before
				}
				r.read(&got, p.data, i)
				if set.Unzip != nil { // Zip is its inverse
					set.Zip(&got.codes[0], len(got.codes)/32)
				}
				checkPanel(t, fmt.Sprintf("%v, %s, panel %d", p, feature, i), &r, &got, packer, p.data, i, set.Offset)
			}
		}
	})
}

func checkPanel(t *testing.T, what string, r *reader, got *panel, packer packing.Packer, data []byte, i, offset int) {
	t.Helper()
	codes, scales, zeros := make([]int8, r.stored), make([]float32, r.groups), make([]int8, r.groups)
	for row := range r.outs {
		global := i*r.outs + row
		if global >= r.rows {
			continue
		}
		packer.Row(codes[:r.cols], scales, zeros, data, global)
		for k, q := range codes[:r.cols] {
			want := int(q) + offset
			if r.half {
				want = 2*int(q) + offset
			}
			if c := got.codes[k/8*8*r.outs+8*row+k%8]; c != byte(want) {
				t.Fatalf("%s, row %d, column %d: code %d, want %d", what, global, k, c, want)
			}
		}
		for g := range r.groups {
			scale, zero := got.scales[g*r.outs+row], r.zero
			switch {
			case got.exact && r.unit != 1:
				scale /= r.unit
			case r.header.Layout == packing.LayoutQSI4CXP || r.header.Layout == packing.LayoutQAI4C32P:
				scale *= 16
			}
			if scale != scales[g] {
				t.Fatalf("%s, row %d, group %d: scale %v, want %v", what, global, g, scale, scales[g])
			}
			at := 0
			if r.header.ZeroKind.IsInt8() {
				at, zero = g, r.zero+int32(zeros[g])
			}
			if z := got.zeros[at*r.outs+row]; z != zero {
				t.Fatalf("%s, row %d, group %d: zero point %d, want %d", what, global, g, z, zero)
			}
		}
		if b := packer.Bias(data, global); got.bias[row] != b && r.biasAt >= 0 && r.header.Flags&packing.FlagBias != 0 && b == b {
			t.Fatalf("%s, row %d: bias %v, want %v", what, global, got.bias[row], b)
		}
	}
}
