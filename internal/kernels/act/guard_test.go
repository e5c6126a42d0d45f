package act

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestGuardPages: nothing touches memory beside the operands, whatever their lengths.
func TestGuardPages(t *testing.T) {
	asmtest.Each(t, accelerated, func(t *testing.T, _ bool) {
		for _, end := range asmtest.Ends {
			for n := 1; n <= 200; n++ {
				t.Run(fmt.Sprint(end, "/", n), func(t *testing.T) { guardPages(t, end, n) })
			}
		}
	})
}

func guardPages(t *testing.T, end asmtest.End, n int) {
	values := make([]float32, n)
	rowKinds[0](rand.New(rand.NewPCG(uint64(n), 5)), values)
	x, q := asmtest.Place(t, end, values), asmtest.Place(t, end, make([]int8, n))
	asmtest.NoFault(t, "Asymmetric", func() { Asymmetric(q, x) })
	for _, block := range []int{16, 32, 48, 64, n} {
		blocks := (n + block - 1) / block
		factors := asmtest.Place(t, end, make([]float32, blocks))
		sums, whole := asmtest.Place(t, end, make([]float32, blocks)), asmtest.Place(t, end, make([]int32, blocks))
		what := fmt.Sprintf(" in blocks of %d", block)
		asmtest.NoFault(t, "quantizeAway"+what, func() { quantizeAway(q, x, factors, block, 3) })
		asmtest.NoFault(t, "quantizeEven"+what, func() { quantizeEven(q, x, factors, block) })
		asmtest.NoFault(t, "BlocksF16"+what, func() { BlocksF16(q, factors, x, block) })
		asmtest.NoFault(t, "BlocksF32"+what, func() { BlocksF32(q, factors, sums, x, block) })
		asmtest.NoFault(t, "GroupSums"+what, func() { GroupSums(whole, q, block) })
	}
}
