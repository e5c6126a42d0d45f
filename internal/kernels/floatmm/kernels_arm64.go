//go:build !purego

package floatmm

// Stubs of the assembly. tileM is the tileKernel for M x 16 sums, group the groupKernel for 4
// panels, both with float32 weights or, if so named, BF16 weights.

//go:noescape
func tile6NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

//go:noescape
func tile4NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

//go:noescape
func tile2NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

//go:noescape
func tile1NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

//go:noescape
func groupNEON(out *float32, w *uint32, panel int, x *float32, k int, bias *float32)

//go:noescape
func tile6BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

//go:noescape
func tile4BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

//go:noescape
func tile2BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

//go:noescape
func tile1BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

//go:noescape
func groupBF16NEON(out *float32, w *uint32, panel int, x *float32, k int, bias *float32)

// transposeNEON is Set.transpose with columns that are column bytes apart.
//
//go:noescape
func transposeNEON(dst *uint32, column int, src *byte, stride, n int)
