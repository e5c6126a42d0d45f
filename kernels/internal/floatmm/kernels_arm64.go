//go:build !purego

package floatmm

// tile6NEON is the tileKernel for 6 x 16 sums with float32 weights.
//
//go:noescape
func tile6NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

// tile4NEON is the tileKernel for 4 x 16 sums with float32 weights.
//
//go:noescape
func tile4NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

// tile2NEON is the tileKernel for 2 x 16 sums with float32 weights.
//
//go:noescape
func tile2NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

// tile1NEON is the tileKernel for 1 x 16 sums with float32 weights.
//
//go:noescape
func tile1NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

// groupNEON is the groupKernel for 4 panels of float32 weights.
//
//go:noescape
func groupNEON(out *float32, w *uint32, panel int, x *float32, k int, bias *float32)

// tile6BF16NEON is the tileKernel for 6 x 16 sums with BF16 weights.
//
//go:noescape
func tile6BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

// tile4BF16NEON is the tileKernel for 4 x 16 sums with BF16 weights.
//
//go:noescape
func tile4BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

// tile2BF16NEON is the tileKernel for 2 x 16 sums with BF16 weights.
//
//go:noescape
func tile2BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

// tile1BF16NEON is the tileKernel for 1 x 16 sums with BF16 weights.
//
//go:noescape
func tile1BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)

// groupBF16NEON is the groupKernel for 4 panels of BF16 weights.
//
//go:noescape
func groupBF16NEON(out *float32, w *uint32, panel int, x *float32, k int, bias *float32)

// transposeNEON is Set.transpose with columns that are column bytes apart.
//
//go:noescape
func transposeNEON(dst *uint32, column int, src *byte, stride, n int)
