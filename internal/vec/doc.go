// Package vec holds the loops over float32 rows that quantizing a checkpoint spends its time in: widening BF16 and
// F16, the range of each group, turning values into codes while their error is summed, and the search for scales.
//
// Start with the functions in vec.go and search.go; their comments define every result to the bit. generic.go and the
// end of search.go are the portable implementation and the reference for the others: AVX2 (kernels_amd64.s, generated
// by _asm) and NEON (kernels_arm64.s, by hand). All of them give the same bits, so a file does not depend on the CPU that wrote it:
// no fused multiply-add, round to nearest even, no flushing of denormals, and sums in a fixed number of lanes.
//
// Select picks an implementation by name; without it the best one that this CPU has is used. The build tag purego
// leaves the assembly out.
//
// Nanoseconds a value on one core of an EPYC (Zen 5), rows of 2048 in groups of 32 in the first-level cache:
//
//	                portable   AVX2
//	WidenBF16       0.63       0.03
//	WidenF16        1.42       0.03
//	GroupRange      0.81       0.06
//	QuantizeGroups  2.03       0.23
//	SumSquares      1.2        0.08
//	Importance      2.9        0.2
//	SearchScales    70         2.9      32 scales
//	ScaleErrors     39         0.8      8 scales
//
// Arguments are checked once a call: lengths that do not fit together are a bug of the caller and panic.
package vec
