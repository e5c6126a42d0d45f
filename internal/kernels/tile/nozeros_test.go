package tile

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestNoZeros has symmetric codes, which kernels may multiply in other ways than codes with zero
// points. Its groups are shorter and longer than the 16 steps up to which arm64 converts sums to
// float32 by a subtraction (shortGroup); 16 steps of products of the smallest int8 are the limit of
// this conversion.
func TestNoZeros(t *testing.T) {
	fills := []fill{
		{steps: []int32{1}},
		{steps: []int32{2}, nasty: true},
		{steps: []int32{2, 2, 2, 2, 1}},
		{steps: []int32{2, 2, 2, 2, 2, 2, 2, 2, 2}, nasty: true, extreme: true},
		{steps: []int32{3, 3, 2}, zeros: true},
		{steps: []int32{15, 15}, extreme: true},
		{steps: []int32{16, 16, 16}, zeros: true, extreme: true},
		{steps: []int32{16, 7}, nasty: true, extreme: true},
		{steps: []int32{17, 16, 1}, extreme: true},
		{steps: []int32{128}, extreme: true},
	}
	eachSet(t, func(t *testing.T, s Set, bits int) {
		rng := rand.New(rand.NewPCG(uint64(bits), 8))
		for _, step := range s.Steps {
			for i, f := range fills {
				// Twice, as the extremes of activations are of one sign or the other.
				for range 2 {
					p := newProduct(t, rng, s, bits, step, f)
					clear(p.zeros)
					p.args.NoZeros = true
					checkStep(t, rng, s, step, p, fmt.Sprintf("%d rows, case %d", step.MR, i))
				}
			}
		}
	})
}
