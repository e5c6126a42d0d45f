// Package floats converts single values between float32 and the narrow floating-point formats of
// checkpoints and packed weights, and has the float32 multiply-add that rounds once, [FMA32].
//
//	format  sign exponent mantissa  bias  largest  infinities  NaN
//	BF16       1        8        7   127  3.39e38  yes         exponent all set, mantissa not 0
//	F16        1        5       10    15    65504  yes         exponent all set, mantissa not 0
//	F8E4M3     1        4        3     7      448  no          0x7f and 0xff only (the "FN" variant,
//	                                                           Micikevicius et al., arXiv:2209.05433)
//	F8E5M2     1        5        2    15    57344  yes         exponent all set, mantissa not 0
//	E2M1       1        2        1     1        6  no          no
//	E8M0       0        8        0   127   1.7e38  no          0xff only
//
// Widening (the ToF32 functions) is exact: every value of a narrow format is a float32. Narrowing
// (the FromF32 functions) rounds to nearest, ties to even, overflows to infinity and produces
// subnormals.
//
// NaN: narrowing keeps the sign and the leading mantissa bits and sets the quiet bit, so a NaN
// never turns into an infinity. F16ToF32 and the F8 functions set the quiet bit as the conversion
// instructions of x86 (VCVTPH2PS) and Arm (FCVT) do, so that assembly can agree in every bit;
// BF16ToF32 is a shift and leaves the bits alone.
//
// The conversions depend on integer operations and on exact floating-point operations only, hence
// are the same on every platform. Package vec has the same conversions for slices.
package floats
