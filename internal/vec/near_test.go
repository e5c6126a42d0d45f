package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestNearScales compares the results of this implementation with the definition.
func TestNearScales(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		rng := rand.New(rand.NewPCG(21, 22))
		for range 500 {
			var n Near
			least, most := rng.Uint32N(1<<30), 1<<30+rng.Uint32N(0x3f800000)
			distances := make([]uint32, 1+rng.IntN(9))
			for i := range distances {
				distances[i] = uint32(rng.IntN(9)-4) << 16
			}
			for i := range n.From {
				n.From[i] = []uint32{rng.Uint32(), least, most, least | 1<<31, most | 1<<31, 0}[rng.IntN(6)]
				n.Present[i], n.Unit[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
			}
			ends := [2][][FitLanes]float32{}
			for i, e := range asmtest.Ends[:2] {
				ends[i] = asmtest.Place(t, e, make([][FitLanes]float32, 1+len(distances)))
			}
			asmtest.NoFault(t, "NearScales", func() { NearScales(ends[0], ends[1], &n, distances, least, most) })
			for c := range ends[0] {
				for i := range FitLanes {
					want := n.Present[i]
					if c > 0 {
						bits := n.From[i] + distances[c-1]
						if size := bits &^ (1 << 31); size >= least && size <= most {
							want = math.Float32frombits(bits)
						}
					}
					if got := ends[0][c][i]; !same(got, want) || !same(ends[1][c][i], mul(want, n.Unit[i])) {
						t.Fatalf("scale %d of lane %d, within %#x .. %#x: %g and %g, want %g with unit %g", c, i, least, most, got, ends[1][c][i], want, n.Unit[i])
					}
				}
			}
		}
	})
}
