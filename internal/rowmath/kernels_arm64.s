//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// Instructions of ARMv8.0 only. Multiplications and additions are separate: a fused one would round differently from
// the portable code. Sums are in V16 to V31.

// MULADD4 adds the products of V0 to V3, 16 columns of b, with x to 4 vectors of sums.
#define MULADD4(x, s0, s1, s2, s3) \
	VFMUL_4S(0, x, 5) \
	VFMUL_4S(1, x, 6) \
	VFMUL_4S(2, x, 7) \
	VFMUL_4S(3, x, 8) \
	VFADD_4S(5, s0, s0) \
	VFADD_4S(6, s1, s1) \
	VFADD_4S(7, s2, s2) \
	VFADD_4S(8, s3, s3)

// MULADD2 does so for 8 columns.
#define MULADD2(x, s0, s1) \
	VFMUL_4S(0, x, 5) \
	VFMUL_4S(1, x, 6) \
	VFADD_4S(5, s0, s0) \
	VFADD_4S(6, s1, s1)

// func tile4x16(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride, k int)
TEXT ·tile4x16(SB), NOSPLIT, $0-56
	MOVD dst+0(FP), R0
	MOVD dstStride+8(FP), R1
	MOVD a+16(FP), R2
	MOVD aStride+24(FP), R3
	MOVD b+32(FP), R4
	MOVD bStride+40(FP), R5
	MOVD k+48(FP), R6
	ADD  R3, R2, R7
	ADD  R3, R7, R8
	ADD  R3, R8, R9
	ADD  R1, R0, R10
	ADD  R1, R10, R11
	ADD  R1, R11, R12
	VLD1 (R0), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1 (R10), [V20.S4, V21.S4, V22.S4, V23.S4]
	VLD1 (R11), [V24.S4, V25.S4, V26.S4, V27.S4]
	VLD1 (R12), [V28.S4, V29.S4, V30.S4, V31.S4]

loop:
	VLD1    (R4), [V0.S4, V1.S4, V2.S4, V3.S4]
	ADD     R5, R4
	VLD1R.P 4(R2), [V9.S4]
	VLD1R.P 4(R7), [V10.S4]
	VLD1R.P 4(R8), [V11.S4]
	VLD1R.P 4(R9), [V12.S4]
	MULADD4(9, 16, 17, 18, 19)
	MULADD4(10, 20, 21, 22, 23)
	MULADD4(11, 24, 25, 26, 27)
	MULADD4(12, 28, 29, 30, 31)
	SUBS    $1, R6
	BNE     loop
	VST1    [V16.S4, V17.S4, V18.S4, V19.S4], (R0)
	VST1    [V20.S4, V21.S4, V22.S4, V23.S4], (R10)
	VST1    [V24.S4, V25.S4, V26.S4, V27.S4], (R11)
	VST1    [V28.S4, V29.S4, V30.S4, V31.S4], (R12)
	RET

// func tile1x64(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride, k int)
TEXT ·tile1x64(SB), NOSPLIT, $0-56
	MOVD dst+0(FP), R0
	MOVD a+16(FP), R2
	MOVD b+32(FP), R4
	MOVD bStride+40(FP), R5
	MOVD k+48(FP), R6
	MOVD R0, R1
	VLD1.P 64(R1), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1.P 64(R1), [V20.S4, V21.S4, V22.S4, V23.S4]
	VLD1.P 64(R1), [V24.S4, V25.S4, V26.S4, V27.S4]
	VLD1.P 64(R1), [V28.S4, V29.S4, V30.S4, V31.S4]

loop:
	MOVD    R4, R1
	ADD     R5, R4
	VLD1R.P 4(R2), [V9.S4]
	VLD1.P  64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	MULADD4(9, 16, 17, 18, 19)
	VLD1.P  64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	MULADD4(9, 20, 21, 22, 23)
	VLD1.P  64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	MULADD4(9, 24, 25, 26, 27)
	VLD1.P  64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	MULADD4(9, 28, 29, 30, 31)
	SUBS    $1, R6
	BNE     loop
	VST1.P  [V16.S4, V17.S4, V18.S4, V19.S4], 64(R0)
	VST1.P  [V20.S4, V21.S4, V22.S4, V23.S4], 64(R0)
	VST1.P  [V24.S4, V25.S4, V26.S4, V27.S4], 64(R0)
	VST1.P  [V28.S4, V29.S4, V30.S4, V31.S4], 64(R0)
	RET

// func tile1x16(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride, k int)
TEXT ·tile1x16(SB), NOSPLIT, $0-56
	MOVD dst+0(FP), R0
	MOVD a+16(FP), R2
	MOVD b+32(FP), R4
	MOVD bStride+40(FP), R5
	MOVD k+48(FP), R6
	VLD1 (R0), [V16.S4, V17.S4, V18.S4, V19.S4]

loop:
	VLD1    (R4), [V0.S4, V1.S4, V2.S4, V3.S4]
	ADD     R5, R4
	VLD1R.P 4(R2), [V9.S4]
	MULADD4(9, 16, 17, 18, 19)
	SUBS    $1, R6
	BNE     loop
	VST1    [V16.S4, V17.S4, V18.S4, V19.S4], (R0)
	RET

// func tile4x8(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride, k int)
TEXT ·tile4x8(SB), NOSPLIT, $0-56
	MOVD dst+0(FP), R0
	MOVD dstStride+8(FP), R1
	MOVD a+16(FP), R2
	MOVD aStride+24(FP), R3
	MOVD b+32(FP), R4
	MOVD bStride+40(FP), R5
	MOVD k+48(FP), R6
	ADD  R3, R2, R7
	ADD  R3, R7, R8
	ADD  R3, R8, R9
	ADD  R1, R0, R10
	ADD  R1, R10, R11
	ADD  R1, R11, R12
	VLD1 (R0), [V16.S4, V17.S4]
	VLD1 (R10), [V18.S4, V19.S4]
	VLD1 (R11), [V20.S4, V21.S4]
	VLD1 (R12), [V22.S4, V23.S4]

loop:
	VLD1    (R4), [V0.S4, V1.S4]
	ADD     R5, R4
	VLD1R.P 4(R2), [V9.S4]
	VLD1R.P 4(R7), [V10.S4]
	VLD1R.P 4(R8), [V11.S4]
	VLD1R.P 4(R9), [V12.S4]
	MULADD2(9, 16, 17)
	MULADD2(10, 18, 19)
	MULADD2(11, 20, 21)
	MULADD2(12, 22, 23)
	SUBS    $1, R6
	BNE     loop
	VST1    [V16.S4, V17.S4], (R0)
	VST1    [V18.S4, V19.S4], (R10)
	VST1    [V20.S4, V21.S4], (R11)
	VST1    [V22.S4, V23.S4], (R12)
	RET

// func tile1x8(dst *float32, dstStride int, a *float32, aStride int, b *float32, bStride, k int)
TEXT ·tile1x8(SB), NOSPLIT, $0-56
	MOVD dst+0(FP), R0
	MOVD a+16(FP), R2
	MOVD b+32(FP), R4
	MOVD bStride+40(FP), R5
	MOVD k+48(FP), R6
	VLD1 (R0), [V16.S4, V17.S4]

loop:
	VLD1    (R4), [V0.S4, V1.S4]
	ADD     R5, R4
	VLD1R.P 4(R2), [V9.S4]
	MULADD2(9, 16, 17)
	SUBS    $1, R6
	BNE     loop
	VST1    [V16.S4, V17.S4], (R0)
	RET

// func highestBlock(x *float32, n int) float32
TEXT ·highestBlock(SB), NOSPLIT, $0-20
	MOVD x+0(FP), R0
	MOVD n+8(FP), R1
	VLD1 (R0), [V0.S4, V1.S4]

loop:
	VLD1.P 32(R0), [V2.S4, V3.S4]
	VFMAX_4S(2, 0, 0)
	VFMAX_4S(3, 1, 1)
	SUBS   $8, R1
	BNE    loop
	VFMAX_4S(1, 0, 0)
	VFMAXV_4S(0, 0)
	FMOVS  F0, ret+16(FP)
	RET

// func scaleBlock(x *float32, n int, factor float32)
TEXT ·scaleBlock(SB), NOSPLIT, $0-20
	MOVD  x+0(FP), R0
	MOVD  n+8(FP), R1
	MOVWU factor+16(FP), R2
	VDUP  R2, V2.S4

loop:
	VLD1   (R0), [V0.S4, V1.S4]
	VFMUL_4S(2, 0, 0)
	VFMUL_4S(2, 1, 1)
	VST1.P [V0.S4, V1.S4], 32(R0)
	SUBS   $8, R1
	BNE    loop
	RET

// CONSTANTS loads the table at R9: log2(e), rounder, log(2) in two parts, 1, the coefficients of r^2 to r^8, and the
// range of arguments, to V18 to V31.
#define CONSTANTS \
	VLD1R.P 8(R9), [V18.D2] \
	VLD1R.P 8(R9), [V19.D2] \
	VLD1R.P 8(R9), [V20.D2] \
	VLD1R.P 8(R9), [V21.D2] \
	VLD1R.P 8(R9), [V22.D2] \
	VLD1R.P 8(R9), [V23.D2] \
	VLD1R.P 8(R9), [V24.D2] \
	VLD1R.P 8(R9), [V25.D2] \
	VLD1R.P 8(R9), [V26.D2] \
	VLD1R.P 8(R9), [V27.D2] \
	VLD1R.P 8(R9), [V28.D2] \
	VLD1R.P 8(R9), [V29.D2] \
	VLD1R.P 8(R9), [V30.D2] \
	VLD1R.P 8(R9), [V31.D2]

// EXP replaces d, 2 float64 in the range, by e^d: detmath.ExpNarrow, step by step. It uses V8 to V15.
#define EXP(d) \
	VFMUL_2D(18, d, 8) \
	VFADD_2D(19, 8, 8) \
	VFSUB_2D(19, 8, 9) \
	VFMUL_2D(20, 9, 10) \
	VFSUB_2D(10, d, d) \
	VFMUL_2D(21, 9, 10) \
	VFSUB_2D(10, d, d) \
	VFMUL_2D(d, d, 9) \
	VFMUL_2D(9, 9, 10) \
	VFMUL_2D(26, d, 11) \
	VFADD_2D(11, 25, 11) \
	VFMUL_2D(28, d, 12) \
	VFADD_2D(12, 27, 12) \
	VFMUL_2D(9, 12, 12) \
	VFADD_2D(12, 11, 11) \
	VFMUL_2D(29, 10, 12) \
	VFADD_2D(12, 11, 11) \
	VFMUL_2D(24, d, 12) \
	VFADD_2D(12, 23, 12) \
	VFMUL_2D(9, 12, 12) \
	VFADD_2D(22, d, d) \
	VFADD_2D(12, d, d) \
	VFMUL_2D(10, 11, 11) \
	VFADD_2D(11, d, d) \
	TIMES2N(8, d)

// TIMES2N multiplies d by 2^n: the low bits of t are n.
#define TIMES2N(t, d) \
	VSHL_2D_52(t, t) \
	VADD_2D(t, d, d)

// func expSumBlock(x *float32, n int, highest float32, lanes, constants *float64)
TEXT ·expSumBlock(SB), NOSPLIT, $0-40
	MOVD  x+0(FP), R0
	MOVD  n+8(FP), R1
	MOVWU highest+16(FP), R2
	MOVD  lanes+24(FP), R3
	MOVD  constants+32(FP), R9
	VDUP  R2, V17.S4
	VLD1  (R3), [V0.D2, V1.D2, V2.D2, V3.D2]
	CONSTANTS

loop:
	VLD1   (R0), [V4.S4, V5.S4]
	VFSUB_4S(17, 4, 4)
	VFSUB_4S(17, 5, 5)
	VFCVTL2_2D(4, 6)
	VFCVTL_2D(4, 4)
	VFCVTL2_2D(5, 7)
	VFCVTL_2D(5, 5)
	VFMAX_2D(30, 4, 4)
	VFMAX_2D(30, 6, 6)
	VFMAX_2D(30, 5, 5)
	VFMAX_2D(30, 7, 7)
	EXP(4)
	EXP(6)
	EXP(5)
	EXP(7)
	VFADD_2D(4, 0, 0)
	VFADD_2D(6, 1, 1)
	VFADD_2D(5, 2, 2)
	VFADD_2D(7, 3, 3)
	VFCVTN_2D(4, 4)
	VFCVTN2_2D(6, 4)
	VFCVTN_2D(5, 5)
	VFCVTN2_2D(7, 5)
	VST1.P [V4.S4, V5.S4], 32(R0)
	SUBS   $8, R1
	BNE    loop
	VST1   [V0.D2, V1.D2, V2.D2, V3.D2], (R3)
	RET

// func expBlock(dst *float64, x *float32, n int, highest float32, constants *float64)
TEXT ·expBlock(SB), NOSPLIT, $0-40
	MOVD  dst+0(FP), R0
	MOVD  x+8(FP), R1
	MOVD  n+16(FP), R2
	FMOVS highest+24(FP), F16
	FCVTSD F16, F16
	VDUP  V16.D[0], V16.D2
	MOVD  constants+32(FP), R9
	CONSTANTS

loop:
	VLD1.P 32(R1), [V4.S4, V5.S4]
	VFCVTL2_2D(5, 7)
	VFCVTL_2D(5, 6)
	VFCVTL2_2D(4, 5)
	VFCVTL_2D(4, 4)
	VFSUB_2D(16, 4, 4)
	VFSUB_2D(16, 5, 5)
	VFSUB_2D(16, 6, 6)
	VFSUB_2D(16, 7, 7)
	VFMAX_2D(30, 4, 4)
	VFMAX_2D(30, 5, 5)
	VFMAX_2D(30, 6, 6)
	VFMAX_2D(30, 7, 7)
	EXP(4)
	EXP(5)
	EXP(6)
	EXP(7)
	VST1.P [V4.D2, V5.D2, V6.D2, V7.D2], 64(R0)
	SUBS   $8, R2
	BNE    loop
	RET

// GATED replaces x, 2 float64, by x / (1 + e^u), with linear in V16 and cubic in V17. It uses V4.
#define GATED(x) \
	VFMUL_2D(x, x, 4) \
	VFMUL_2D(x, 4, 4) \
	VFMUL_2D(17, 4, 4) \
	VFADD_2D(4, x, 4) \
	VFMUL_2D(16, 4, 4) \
	VFMIN_2D(31, 4, 4) \
	VFMAX_2D(30, 4, 4) \
	EXP(4) \
	VFADD_2D(4, 22, 4) \
	VFDIV_2D(4, x, x)

// func gateBlock(gate, up *float32, n int, linear, cubic float64, constants *float64)
TEXT ·gateBlock(SB), NOSPLIT, $0-48
	MOVD gate+0(FP), R0
	MOVD up+8(FP), R1
	MOVD n+16(FP), R2
	MOVD linear+24(FP), R3
	MOVD cubic+32(FP), R4
	MOVD constants+40(FP), R9
	VDUP R3, V16.D2
	VDUP R4, V17.D2
	CONSTANTS

loop:
	VLD1   (R0), [V0.S4]
	VLD1.P 16(R1), [V2.S4]
	VFCVTL2_2D(0, 1)
	VFCVTL_2D(0, 0)
	GATED(0)
	GATED(1)
	VFCVTN_2D(0, 0)
	VFCVTN2_2D(1, 0)
	VFMUL_4S(2, 0, 0)
	VST1.P [V0.S4], 16(R0)
	SUBS   $4, R2
	BNE    loop
	RET
