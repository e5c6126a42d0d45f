// Package detmath has the elementary functions for computing files and reported figures, with the
// same bits on every platform.
//
// The standard library's elementary functions, such as math.Log, have assembly on some
// architectures, and its last bits differ from the portable code's. The functions here use only
// operations that IEEE 754 defines exactly: the four basic operations, each product rounded by an
// explicit conversion so that no compiler fuses the product with a sum, and math.FMA with the same
// single rounding in hardware and in software.
//
// The stated errors are the largest measured against 200-bit arithmetic; for the logarithms, on 3
// million arguments of all magnitudes and near 1. The tests repeat the measurement on fewer
// arguments.
//
// [ExpNarrow] and [Tanh32] are for results that are rounded to float32, such as the exponentials of
// a softmax. The other functions are accurate to about a unit in the last place of a float64.
package detmath
