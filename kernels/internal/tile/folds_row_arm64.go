//go:build !purego

package tile

// foldRowNEON is foldRow for 8 rows.
//
//go:noescape
func foldRowNEON(out *float32, t, sums *int32, factor, negZero int32, scales, bias *float32, rec float32)

// addSumsNEON is addSums for 8 rows.
//
//go:noescape
func addSumsNEON(t, sums *int32, groups int, factor int32)
