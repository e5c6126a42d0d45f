//go:build !purego

package act

// quantizeAwayBlocks is quantizeAwayGeneric with NEON for whole blocks, block a multiple of 32,
// both counts positive.
//
//go:noescape
func quantizeAwayBlocks(q *int8, x, factors *float32, blocks, block int, zero int32)

// quantizeEvenBlocks is quantizeEvenGeneric with NEON for whole blocks, block a multiple of 32,
// both counts positive.
//
//go:noescape
func quantizeEvenBlocks(q *int8, x, factors *float32, blocks, block int)

// groupSumsBlocks is groupSumsGeneric with NEON for whole groups, group a multiple of 16, both
// counts positive.
//
//go:noescape
func groupSumsBlocks(dst *int32, q *int8, groups, group int)
