//go:build !purego

package tile

// epilogueRowNEON is epilogueRow, and addSumsNEON is addSums, for 8 rows.

//go:noescape
func epilogueRowNEON(out *float32, t, sums *int32, factor, negZero int32, scales, bias *float32, rec float32)

//go:noescape
func addSumsNEON(t, sums *int32, groups int, factor int32)
