package rowmath

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestGuardPages: no function touches memory beside its operands, whatever their lengths.
func TestGuardPages(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	asmtest.Each(t, Sets, func(t *testing.T, set *Set) {
		for _, end := range asmtest.Ends {
			for n := 1; n <= 150; n++ {
				t.Run(fmt.Sprint(end, "/", n), func(t *testing.T) {
					x, up := asmtest.Place(t, end, random(rng, n)), asmtest.Place(t, end, random(rng, n))
					asmtest.NoFault(t, "Gate", func() { set.Gate(x, up, GeluLinear, GeluCubic) })
					asmtest.NoFault(t, "Softmax", func() { set.Softmax(x) })
					for _, m := range []int{1, 3, 4, 5, 9} {
						k, gap := 1+rng.IntN(9), rng.IntN(3) // gap: elements between rows
						a := asmtest.Place(t, end, random(rng, (m-1)*(k+gap)+k))
						b := asmtest.Place(t, end, random(rng, (k-1)*(n+gap)+n))
						dst := asmtest.Place(t, end, random(rng, (m-1)*(n+gap)+n))
						what := fmt.Sprintf("MulAdd of %d x %d x %d", m, k, n)
						asmtest.NoFault(t, what, func() { set.MulAdd(dst, n+gap, a, k+gap, b, n+gap, m, k, n) })
					}
				})
			}
		}
	})
}
