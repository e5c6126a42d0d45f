// Package floatmm multiplies float32 activations with float32 or BF16 weights: y = x W^T + b. The
// package is the baseline for quantized kernels, in accuracy and in speed, and so should be as fast
// as the machine allows.
//
// # Numbers
//
// Every Set gives the same bits, on any machine and with any division of the work: each output is
// the chain
//
//	f = 0; for k = 0, 1, ... cols-1: f = fma(x[m][k], w[n][k], f); y[m][n] = f + b[n]
//
// where fma is the float32 multiply-add, rounded once, and b is +0 without a bias. NaN is written
// as 0x7fc00000; infinities and NaNs in x or w propagate. Widening BF16 and F16 weights is exact.
//
// # Use
//
// A Set holds the kernels of an instruction set, named as in package kernels. Weights are packed
// for a Set in panels of Set.NR rows, and activations row by row:
//
//	set := floatmm.Sets.For(features).Code
//	w := set.New(packing.BF16, rows, cols, bias)  // allocates: w.Panels() panels
//	w.Fill(&scratch, data, first, last)           // panels first to last-1, row-major little-endian
//
//	packed := make([]float32, set.XLen(m, cols))
//	set.PackX(packed, x, m, cols, from, to)       // rows from to to-1 of the m rows of x
//	w.Mul(&scratch, dst, packed, m, first, last)  // panels first to last-1 of the product
//
// Weights that need not stay in memory, such as a mapped checkpoint's or a quantized tensor's, are
// read row by row:
//
//	src := floatmm.Source{Rows: rows, Cols: cols, Read: read, Bias: bias}
//	set.MulRows(&scratch, dst, packed, m, &src, first, last)
//
// MulRows builds a panel in scratch, multiplies all m rows with the panel and continues with the
// next panel: a goroutine's scratch holds at most (Set.NR + 8) * cols float32. src.Panels(set) is
// the number of panels. Rows of BF16 in memory need no Read: with src.BF16, MulRows transposes a
// few columns at a time and prefetches the next columns. For 16 rows of x and 8192 x 2048 such
// weights from memory, MulRows does 174 GFLOP/s with AVX-512 and 77 with AVX2 (CPU time of a thread
// on a busy EPYC, Zen 5); with a Read that widens the row, 80 and 61.
//
// Fill, PackX, Mul and MulRows may run in several goroutines on distinct ranges, each with its own
// Scratch, and do not allocate once Scratch has grown. PackX must be done before Mul or MulRows
// reads packed. A product of a single row is fastest if the ranges of panels are multiples of
// Set.Group.
//
// # Layout
//
// Columns are padded to a multiple of 4 with x = +0 and w = -0: the product -0 changes no sum. A
// panel is [k][NR] float32, or for BF16 [k/2][NR] pairs with the even k in the low half. Rows past
// the last are zero. The rows of x are cut into tiles of Set.Tiles rows (see pack.go); a tile of
// mr rows is [k/4][mr][4].
//
// # Speed
//
// A core of an EPYC (Zen 5). Multiply-adds alone reach 131 GFLOP/s with AVX2 and 262 with AVX-512;
// reading memory, 40 GB/s (two cores: 43 to 48). F32 and BF16 weights:
//
//	                                        AVX2         AVX-512
//	2048 x 4096, 128 rows of x, GFLOP/s     127, 136     257, 269
//	            , 16 rows                   123, 131     243, 266
//	4096 x 14336, 1 row, GB/s of weights    36, 36       38, 39
//	            , two cores                 41, 44       41, 50
//	128 x 1024, 1 row, in the cache         204, 111     209, 184
//
// The clock moves by a few per cent, hence figures above the peak. llvm-mca's Neoverse V2 does 3.99
// of 4 multiply-adds a cycle in the NEON tile of 6 rows, 3.2 with BF16 weights.
package floatmm
