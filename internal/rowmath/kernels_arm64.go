//go:build !purego

package rowmath

// Stubs of the assembly. tileMxN is Set.MulAdd for M x N outputs, k > 0, strides in bytes.
// NAMEBlock is NAMEGeneric for n values, n a positive multiple of 8.

//go:noescape
func tile4x16(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride int, k int)

//go:noescape
func tile1x64(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride int, k int)

//go:noescape
func tile1x16(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride int, k int)

//go:noescape
func tile4x8(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride int, k int)

//go:noescape
func tile1x8(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride int, k int)

// highestBlock returns the largest of n values, n a positive multiple of 8, and ignores or returns
// a NaN.
//
//go:noescape
func highestBlock(x *float32, n int) float32

//go:noescape
func expSumBlock(x *float32, n int, highest float32, lanes *float64, constants *float64)

//go:noescape
func expBlock(dst *float64, x *float32, n int, highest float32, constants *float64)

//go:noescape
func scaleBlock(x *float32, n int, factor float32)

//go:noescape
func gateBlock(gate *float32, up *float32, n int, linear float64, cubic float64, constants *float64)
