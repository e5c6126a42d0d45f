// Package floatmm multiplies float32 activations with float32 or BF16 weights: y = x W^T + b. It is what quantized
// kernels are compared with, in speed (so it is meant to be as fast as the machine allows) and in accuracy.
//
// # Numbers
//
// Every Set gives the same bits, on any machine and with any division of the work: each output is one chain
//
//	f = 0; for k = 0, 1, ... cols-1: f = fma(x[m][k], w[n][k], f); y[m][n] = f + b[n]
//
// where fma is the float32 one, rounded once, and b is +0 where there is no bias. NaN is written as 0x7fc00000;
// infinities and NaNs in x or w go the way of arithmetic. BF16 and F16 weights are widened, which is exact.
//
// # Use
//
// A Set is the kernels of one instruction set, named as in package kernels. Weights are packed for a Set, by panels of
// Set.NR rows, and so are activations, row by row:
//
//	set := floatmm.Sets.For(features).Code
//	w := set.New(packing.BF16, rows, cols, bias)      // allocates: w.Panels() panels
//	w.Fill(&scratch, data, first, last)               // panels first to last-1 from row-major little-endian data
//
//	packed := make([]float32, set.XLen(m, cols))
//	set.PackX(packed, x, m, cols, from, to)           // rows from to to-1 of the m rows of x
//	w.Mul(&scratch, dst, packed, m, first, last)      // panels first to last-1 of the product
//
// Weights that need not stay in memory, those of a mapped checkpoint or of a quantized tensor, come a row at a time:
//
//	src := floatmm.Source{Rows: rows, Cols: cols, Read: read, Bias: bias}
//	set.MulRows(&scratch, dst, packed, m, &src, first, last)
//
// which builds a panel in scratch, multiplies all m rows with it and goes on to the next: the scratch of a goroutine
// grows to (Set.NR + 8) * cols float32 and no further. src.Panels(set) is the number of panels.
//
// Fill, PackX, Mul and MulRows may run in several goroutines on distinct ranges, each with a Scratch of its own; they
// do not allocate once Scratch has grown. PackX must be done before Mul or MulRows reads packed. A product of one row
// is fastest if the ranges of panels are multiples of Set.Group.
//
// # Layout
//
// Columns are filled up to a multiple of 4 with x = +0 and w = -0, whose product -0 changes no sum. A panel is
// [k][NR] float32, or for BF16 [k/2][NR] pairs of which the even k is the low half. Rows past the last are zero. The
// rows of x are cut into tiles of Set.Tiles rows (see tiles.go); a tile of mr rows is [k/4][mr][4].
//
// # Speed
//
// One core of an EPYC (Zen 5) whose multiply-adds alone reach 131 GFLOP/s with AVX2 and 262 with AVX-512, and which
// reads memory at 40 GB/s (two cores: 43 to 48). F32 and BF16 weights:
//
//	                                        AVX2         AVX-512
//	2048 x 4096, 128 rows of x, GFLOP/s     127, 136     257, 269
//	            , 16 rows                   123, 131     243, 266
//	4096 x 14336, 1 row, GB/s of weights    36, 36       38, 39
//	            , two cores                 41, 44       41, 50
//	128 x 1024, 1 row, in the cache         204, 111     209, 184
//
// The clock moves by a few per cent, hence figures above the peak. llvm-mca's Neoverse V2 does 3.99 of 4 multiply-adds a
// cycle in the NEON tile of 6 rows, 3.2 with BF16 weights.
package floatmm
