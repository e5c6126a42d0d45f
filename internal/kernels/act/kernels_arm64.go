//go:build !purego

package act

// Stubs of the assembly. NAMEBlocks is NAMEGeneric with NEON for whole blocks, block a multiple of
// 32, or whole groups, group a multiple of 16. All counts are positive.

//go:noescape
func quantizeAwayBlocks(q *int8, x, factors *float32, blocks, block int, zero int32)

//go:noescape
func quantizeEvenBlocks(q *int8, x, factors *float32, blocks, block int)

//go:noescape
func groupSumsBlocks(dst *int32, q *int8, groups, group int)
