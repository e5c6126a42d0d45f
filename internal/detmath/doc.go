// Package detmath has the elementary functions that figures and files are computed
// with: the same bits on every platform.
//
// The standard library's math.Log and its like have assembly on some architectures,
// whose last bits differ from those of the portable code. The functions here use
// only operations that IEEE 754 defines exactly: the four basic ones, each product
// rounded by an explicit conversion so that no compiler fuses it with a sum, and
// math.FMA, whose single rounding is the same in hardware and in software.
//
// The errors stated are the largest ones measured against 200-bit arithmetic, for
// the logarithms on 3 million arguments of all magnitudes and near 1; the tests repeat
// the measurement on fewer.
//
// [ExpNarrow] and [Tanh32] are for results that are rounded to float32, as the
// many exponentials of a softmax are; the others are as good as a float64 can be, or
// nearly.
package detmath
