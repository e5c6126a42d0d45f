//go:build !purego

package vec

// Stubs of the assembly. NAMEBlock is NAMEGeneric with NEON for n > 0 values, or for whole groups,
// group a multiple of 16, both counts positive. n is a multiple of 16 in widen, importance, fitLoad
// and the following functions, and of 256 in sumSquares.

//go:noescape
func widenBF16Block(dst *float32, src *byte, n int)

//go:noescape
func widenF16Block(dst *float32, src *byte, n int)

// The result is the largest of all magnitudes' bits: at or above expMask if a value is not finite.
//
//go:noescape
func groupRangeBlock(lo, hi, x *float32, groups, group int) (top uint32)

//go:noescape
func leastMagnitudesBlock(least *uint32, x *float32, groups, group int)

// Groups come in blocks of 8, blocks positive. t is a LatticeTest.
//
//go:noescape
func latticeGroupsBlock(mask *uint8, lo, hi *float32, least *uint32, t *float32, blocks int)

// With zeroStep 1 each group has its zero point, with 0 all share the zero point at zero. acc is an
// ErrorSum's 32 sums.
//
//go:noescape
func quantizeGroupsBlock(q *int8, x, scale, inv *float32, zero *int8, zeroStep, groups, group, qmin, qmax int, acc *float64)

// quantizeFractionsBlock is quantizeGroupsBlock with a fraction of each group.
//
//go:noescape
func quantizeFractionsBlock(q *int8, x, scale, inv *float32, zero *int8, fraction *float32, zeroStep, groups, group, qmin, qmax int, acc *float64)

//go:noescape
func searchScalesBlock(s *float32, unit float32, x, w *float32, n int)

//go:noescape
func scaleErrorsBlock(f, x, w *float32, n int)

//go:noescape
func sumSquaresBlock(sum *float64, x *float32, n int)

//go:noescape
func importanceBlock(w, x *float32, n int, inverse float32)

//go:noescape
func columnSumsBlock(sum, e, v *float32, n int)

// grids points to the scales of a ColumnGrids.
//
//go:noescape
func columnCodesBlock(grids, values, shifts, codes, sums *float32)

//go:noescape
func fitRangesBlock(s *float32, unit, base, inverse, most float32, x, w *float32, n int)

//go:noescape
func gridErrorsBlock(f *float32, least, most float32, x, w *float32, n int)

// data has the pairs of values in another order than fitLoadGeneric. units are Unit, Weight and
// Offset of a Fit.
//
//go:noescape
func fitLoadBlock(data *int16, x, w, units *float32, n int)

//go:noescape
func fitSearchBlock(scale *float32, data *int16, starts, limits *uint32, n int)

//go:noescape
func fitChooseBlock(choice *int32, stored *float32, data *int16, limits *uint32, n int, power float32)

//go:noescape
func fitTotalsBlock(totals *float32, data *int16, n int)

// lanes is a GridSearch. There are four times fours candidates.
//
//go:noescape
func searchGridsBlock(lanes, list *float32, data *int16, n, fours, shift int)

// lanes is a GridChoice.
//
//go:noescape
func chooseGridsBlock(choice *int32, lanes *float32, data *int16, n, count, shift int, power float32)

// step is a SoftStep.
//
//go:noescape
func stepSoftBlock(value, grad *float32, least *int8, x, m, v *float32, blocks, choices int, step *float32)
