//go:build !purego

package floatmm

// Stubs of the assembly. tileM is the tileKernel for M x 16 sums, group the groupKernel for 4
// panels, both with float32 weights or, if so named, BF16 weights. They are called through a Set
// only, so that go:noescape would have no effect.

func tile6NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
func tile4NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
func tile2NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
func tile1NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
func groupNEON(out *float32, w *uint32, panel int, x *float32, k int, bias *float32)
func tile6BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
func tile4BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
func tile2BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
func tile1BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
func groupBF16NEON(out *float32, w *uint32, panel int, x *float32, k int, bias *float32)

// transposeNEON is Set.transpose with columns that are column bytes apart.
func transposeNEON(dst *uint32, column int, src *byte, stride, n int)
