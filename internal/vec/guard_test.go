package vec

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestGuardPages: no function touches memory beside its operands, whatever their lengths.
func TestGuardPages(t *testing.T) {
	lengths := []int{255, 256, 257, 272, 300, 512, 1000, 1040}
	for n := 1; n <= 100; n++ {
		lengths = append(lengths, n)
	}
	asmtest.Each(t, accelerated, func(t *testing.T, _ level) {
		for _, end := range asmtest.Ends {
			for _, n := range lengths {
				t.Run(fmt.Sprint(end, "/", n), func(t *testing.T) { guardPages(t, end, n) })
			}
		}
	})
}

func guardPages(t *testing.T, end asmtest.End, n int) {
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	x, w := asmtest.Place(t, end, values), asmtest.Place(t, end, make([]float32, n))
	bytes := asmtest.Place(t, end, make([]byte, 2*n))
	asmtest.NoFault(t, "WidenBF16", func() { WidenBF16(w, bytes) })
	asmtest.NoFault(t, "WidenF16", func() { WidenF16(w, bytes) })
	asmtest.NoFault(t, "SumSquares", func() { SumSquares(x) })
	columns, sums := asmtest.Place(t, end, make([]float32, ColumnLanes*n)), asmtest.Place(t, end, make([][ColumnLanes]float32, 1))
	asmtest.NoFault(t, "ColumnSums", func() { ColumnSums(&sums[0], columns, x) })
	lanes, steps := asmtest.Place(t, end, make([][ColumnLanes]float32, 4)), asmtest.Place(t, end, make([]ColumnGrids, 1))
	asmtest.NoFault(t, "ColumnCodes", func() { ColumnCodes(&steps[0], &lanes[0], &lanes[1], &lanes[2], &lanes[3]) })
	asmtest.NoFault(t, "Importance", func() { Importance(w, x, 1) })

	search, final := asmtest.Place(t, end, make([]Search, 1)), asmtest.Place(t, end, make([]Final, 1))
	for c := range SearchLanes {
		search[0].Inv[c], search[0].Lo[c], search[0].Hi[c] = float32(c-16)/4, -8, 7
	}
	for c := range FinalLanes {
		final[0].Scale[c], final[0].Lo[c], final[0].Hi[c] = float32(c+1)/8, -8, 7
	}
	asmtest.NoFault(t, "SearchScales", func() { SearchScales(&search[0], 1, x, w) })
	asmtest.NoFault(t, "ScaleErrors", func() { ScaleErrors(&final[0], x, w) })

	ranges, grids := asmtest.Place(t, end, make([]Ranges, 1)), asmtest.Place(t, end, make([]Grids, 1))
	for c := range FinalLanes {
		grids[0].Scale[c] = float32(c+1) / 8
	}
	asmtest.NoFault(t, "FitRanges", func() { FitRanges(&ranges[0], 1, 1, 1, 15, x, w) })
	asmtest.NoFault(t, "GridErrors", func() { GridErrors(&grids[0], 0, 15, x, w) })

	const choices = 3
	codes, soft := n*SoftLanes, asmtest.Place(t, end, []SoftStep{{2, 2, 1, 1, 1}})
	logits, first, second := asmtest.Place(t, end, make([]float32, codes*choices)), asmtest.Place(t, end, make([]float32, codes*choices)), asmtest.Place(t, end, make([]float32, codes*choices))
	relaxed, slopes, lowest := asmtest.Place(t, end, make([]float32, codes)), asmtest.Place(t, end, make([]float32, codes)), asmtest.Place(t, end, make([]int8, codes))
	asmtest.NoFault(t, "StepSoft", func() { StepSoft(&soft[0], choices, relaxed, slopes, lowest, logits, first, second) })

	q, acc := asmtest.Place(t, end, make([]int8, n)), asmtest.Place(t, end, make([]ErrorSum, 1))
	for _, group := range []int{16, 32, 48, 256, n} {
		groups := Groups(n, group)
		lo, hi := asmtest.Place(t, end, make([]float32, groups)), asmtest.Place(t, end, make([]float32, groups))
		scale, inv := asmtest.Place(t, end, make([]float32, groups)), asmtest.Place(t, end, make([]float32, groups))
		zero := asmtest.Place(t, end, make([]int8, groups))
		for g := range groups {
			scale[g], inv[g] = 0.5, 2
		}
		what := fmt.Sprintf(" in groups of %d", group)
		asmtest.NoFault(t, "GroupRange"+what, func() { GroupRange(lo, hi, x, group) })
		least := asmtest.Place(t, end, make([]uint32, LeastLanes*groups))
		asmtest.NoFault(t, "LeastMagnitudes"+what, func() { LeastMagnitudes(least, x, group) })
		mask := asmtest.Place(t, end, make([]uint8, Groups(groups, 8)))
		asmtest.NoFault(t, "LatticeGroups"+what, func() { LatticeGroups(mask, lo, hi, least, &latticeTests[1]) })
		asmtest.NoFault(t, "QuantizeGroups"+what, func() { QuantizeGroups(q, x, scale, inv, nil, group, -8, 7, &acc[0]) })
		fraction := asmtest.Place(t, end, make([]float32, groups))
		asmtest.NoFault(t, "QuantizeFractions"+what, func() { QuantizeFractions(q, x, scale, inv, zero, fraction, group, -8, 7, &acc[0]) })
		asmtest.NoFault(t, "QuantizeGroups with zero points"+what, func() { QuantizeGroups(q, x, scale, inv, zero, group, -8, 7, &acc[0]) })
	}
}
