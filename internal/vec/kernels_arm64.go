//go:build !purego

package vec

// widenBF16Block is widenBF16Generic with NEON for n values, n a positive multiple of 16.
//
//go:noescape
func widenBF16Block(dst *float32, src *byte, n int)

// widenF16Block is widenF16Generic with NEON for n values, n a positive multiple of 16.
//
//go:noescape
func widenF16Block(dst *float32, src *byte, n int)

// groupRangeBlock is groupRangeGeneric with NEON for whole groups, group a multiple of 16, both
// counts positive. It returns the largest of all magnitudes' bits: at or above expMask if a value
// is not finite.
//
//go:noescape
func groupRangeBlock(lo, hi, x *float32, groups, group int) (top uint32)

// leastMagnitudesBlock is leastMagnitudesGeneric with NEON for whole groups, group a multiple of 16,
// both counts positive.
//
//go:noescape
func leastMagnitudesBlock(least *uint32, x *float32, groups, group int)

// latticeGroupsBlock is latticeGroupsGeneric with NEON for groups in blocks of 8, blocks positive. t
// is a LatticeTest.
//
//go:noescape
func latticeGroupsBlock(mask *uint8, lo, hi *float32, least *uint32, t *float32, blocks int)

// quantizeGroupsBlock is quantizeGroupsGeneric with NEON for whole groups, group a multiple of 16,
// both counts positive. With zeroStep 1 each group has its zero point, with 0 all share the one at
// zero. acc is an ErrorSum's 32 sums.
//
//go:noescape
func quantizeGroupsBlock(q *int8, x, scale, inv *float32, zero *int8, zeroStep, groups, group, qmin, qmax int, acc *float64)

// quantizeFractionsBlock is quantizeGroupsBlock with a fraction of each group.
//
//go:noescape
func quantizeFractionsBlock(q *int8, x, scale, inv *float32, zero *int8, fraction *float32, zeroStep, groups, group, qmin, qmax int, acc *float64)

// searchScalesBlock is searchScalesGeneric with NEON for n values, n positive.
//
//go:noescape
func searchScalesBlock(s *float32, unit float32, x, w *float32, n int)

// scaleErrorsBlock is scaleErrorsGeneric with NEON for n values, n positive.
//
//go:noescape
func scaleErrorsBlock(f, x, w *float32, n int)

// sumSquaresBlock is sumSquaresGeneric with NEON for n values, n a positive multiple of 256.
//
//go:noescape
func sumSquaresBlock(sum *float64, x *float32, n int)

// importanceBlock is importanceGeneric with NEON for n values, n a positive multiple of 16.
//
//go:noescape
func importanceBlock(w, x *float32, n int, inverse float32)

// columnSumsBlock is columnSumsGeneric with NEON for n factors, n positive.
//
//go:noescape
func columnSumsBlock(sum, e, v *float32, n int)

// columnCodesBlock is columnCodesGeneric with NEON. grids points to the scales of a ColumnGrids.
//
//go:noescape
func columnCodesBlock(grids, values, shifts, codes, sums *float32)

// fitRangesBlock is fitRangesGeneric with NEON for n values, n positive.
//
//go:noescape
func fitRangesBlock(s *float32, unit, base, inverse, most float32, x, w *float32, n int)

// gridErrorsBlock is gridErrorsGeneric with NEON for n values, n positive.
//
//go:noescape
func gridErrorsBlock(f *float32, least, most float32, x, w *float32, n int)

// fitLoadBlock is fitLoadGeneric with NEON for groups of n values, n a positive multiple of 16; data
// has the pairs of values in another order. units are Unit, Weight and Offset of a Fit.
//
//go:noescape
func fitLoadBlock(data *int16, x, w, units *float32, n int)

// fitSearchBlock is fitSearchGeneric with NEON for groups of n values, n a positive multiple of 16.
//
//go:noescape
func fitSearchBlock(scale *float32, data *int16, starts, limits *uint32, n int)

// fitChooseBlock is fitChooseGeneric with NEON for groups of n values, n a positive multiple of 16.
//
//go:noescape
func fitChooseBlock(choice *int32, stored *float32, data *int16, limits *uint32, n int, power float32)

// fitTotalsBlock is fitTotalsGeneric with NEON for groups of n values, n a positive multiple of 16.
//
//go:noescape
func fitTotalsBlock(totals *float32, data *int16, n int)

// searchGridsBlock is searchGridsGeneric with NEON for groups of n values, n a positive multiple of 16,
// and four times so many candidates. lanes is a GridSearch.
//
//go:noescape
func searchGridsBlock(lanes, list *float32, data *int16, n, fours, shift int)

// chooseGridsBlock is chooseGridsGeneric with NEON for groups of n values, n a positive multiple of 16.
// lanes is a GridChoice.
//
//go:noescape
func chooseGridsBlock(choice *int32, lanes *float32, data *int16, n, count, shift int, power float32)
