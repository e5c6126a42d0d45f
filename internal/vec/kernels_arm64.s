//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// Instructions of ARMv8.0 only. Multiplications and additions are separate: a fused one would round differently from
// the portable code. Rounding to nearest even and denormals are as FPCR stands in Go: the default, nothing flushed.

// EACH4 applies an instruction to four consecutive registers, from m, n and d on. WITH4 takes x for all four in place of
// m. EACH4OF is for instructions with one source.
#define EACH4(OP, m, n, d) \
	OP(m, n, d)       \
	OP(m+1, n+1, d+1) \
	OP(m+2, n+2, d+2) \
	OP(m+3, n+3, d+3)

#define WITH4(OP, x, n, d) \
	OP(x, n, d)     \
	OP(x, n+1, d+1) \
	OP(x, n+2, d+2) \
	OP(x, n+3, d+3)

#define EACH4OF(OP, n, d) \
	OP(n, d)     \
	OP(n+1, d+1) \
	OP(n+2, d+2) \
	OP(n+3, d+3)

// CLEAR4 clears four registers.
#define CLEAR4(a, b, c, d) \
	VEOR a.B16, a.B16, a.B16 \
	VEOR b.B16, b.B16, b.B16 \
	VEOR c.B16, c.B16, c.B16 \
	VEOR d.B16, d.B16, d.B16

// func widenBF16Block(dst *float32, src *byte, n int)
TEXT ·widenBF16Block(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
	VEOR V31.B16, V31.B16, V31.B16

loop:
	// 16 zero bits below each value make it a float32
	VLD1.P 32(R1), [V0.H8, V1.H8]
	VZIP1  V0.H8, V31.H8, V2.H8
	VZIP2  V0.H8, V31.H8, V3.H8
	VZIP1  V1.H8, V31.H8, V4.H8
	VZIP2  V1.H8, V31.H8, V5.H8
	VST1.P [V2.S4, V3.S4, V4.S4, V5.S4], 64(R0)
	SUBS   $16, R2
	BNE    loop
	RET

// func widenF16Block(dst *float32, src *byte, n int)
TEXT ·widenF16Block(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2

loop:
	VLD1.P 32(R1), [V0.H8, V1.H8]
	VFCVTL_4S(0, 2)
	VFCVTL2_4S(0, 3)
	VFCVTL_4S(1, 4)
	VFCVTL2_4S(1, 5)
	VST1.P [V2.S4, V3.S4, V4.S4, V5.S4], 64(R0)
	SUBS   $16, R2
	BNE    loop
	RET

// func groupRangeBlock(lo, hi, x *float32, groups, group int) (top uint32)
//
// The comparisons are of the floats' bits. As signed integers, the largest, or 0, is the largest positive float. As
// unsigned integers, the largest, or the bits of -0, is the most negative float.
TEXT ·groupRangeBlock(SB), NOSPLIT, $0-44
	MOVD lo+0(FP), R0
	MOVD hi+8(FP), R1
	MOVD x+16(FP), R2
	MOVD groups+24(FP), R3
	MOVD group+32(FP), R4
	MOVD $0x80000000, R5
	VDUP R5, V30.S4
	VEOR V31.B16, V31.B16, V31.B16
	VEOR V29.B16, V29.B16, V29.B16 // the largest magnitudes

group:
	VMOV V31.B16, V16.B16 // maxima
	VMOV V31.B16, V17.B16
	VMOV V31.B16, V18.B16
	VMOV V31.B16, V19.B16
	VMOV V30.B16, V20.B16 // minima
	VMOV V30.B16, V21.B16
	VMOV V30.B16, V22.B16
	VMOV V30.B16, V23.B16
	MOVD R4, R5

values:
	VLD1.P 64(R2), [V0.S4, V1.S4, V2.S4, V3.S4]
	EACH4(VSMAX_4S, 0, 16, 16)
	VUMAX  V0.S4, V20.S4, V20.S4
	VUMAX  V1.S4, V21.S4, V21.S4
	VUMAX  V2.S4, V22.S4, V22.S4
	VUMAX  V3.S4, V23.S4, V23.S4
	SUBS   $16, R5
	BNE    values

	VSMAX_4S(17, 16, 16)
	VSMAX_4S(19, 18, 18)
	VSMAX_4S(18, 16, 16)
	VUMAX V21.S4, V20.S4, V20.S4
	VUMAX V23.S4, V22.S4, V22.S4
	VUMAX V22.S4, V20.S4, V20.S4
	VEOR  V30.B16, V20.B16, V20.B16 // now both are magnitudes
	VUMAX V16.S4, V29.S4, V29.S4
	VUMAX V20.S4, V29.S4, V29.S4
	VUMAXV_4S(16, 16)
	VUMAXV_4S(20, 20)
	FSUBS   F20, F31, F20 // 0 - magnitude: exact, and +0 where there is nothing negative
	FMOVS.P F16, 4(R1)
	FMOVS.P F20, 4(R0)
	SUBS    $1, R3
	BNE     group

	VUMAXV_4S(29, 29)
	VMOV V29.S[0], R0
	MOVW R0, top+40(FP)
	RET

// func leastMagnitudesBlock(least *uint32, x *float32, groups, group int)
//
// Doubling the bits drops the sign; 1 less makes zeros the largest.
TEXT ·leastMagnitudesBlock(SB), NOSPLIT, $0-32
	MOVD least+0(FP), R0
	MOVD x+8(FP), R1
	MOVD groups+16(FP), R2
	MOVD group+24(FP), R3
	VMOVI $255, V30.B16 // -1

leastGroup:
	VMOV V30.B16, V16.B16
	VMOV V30.B16, V17.B16
	VMOV V30.B16, V18.B16
	VMOV V30.B16, V19.B16
	MOVD R3, R4

leastValues:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VADD   V0.S4, V0.S4, V0.S4
	VADD   V1.S4, V1.S4, V1.S4
	VADD   V2.S4, V2.S4, V2.S4
	VADD   V3.S4, V3.S4, V3.S4
	VADD   V30.S4, V0.S4, V0.S4
	VADD   V30.S4, V1.S4, V1.S4
	VADD   V30.S4, V2.S4, V2.S4
	VADD   V30.S4, V3.S4, V3.S4
	VUMIN  V0.S4, V16.S4, V16.S4
	VUMIN  V1.S4, V17.S4, V17.S4
	VUMIN  V2.S4, V18.S4, V18.S4
	VUMIN  V3.S4, V19.S4, V19.S4
	SUBS   $16, R4
	BNE    leastValues

	VUMIN  V17.S4, V16.S4, V16.S4
	VUMIN  V19.S4, V18.S4, V18.S4
	VUMIN  V18.S4, V16.S4, V16.S4
	VST1.P [V16.S4], 16(R0)
	SUBS   $1, R2
	BNE    leastGroup
	RET

// LANES sets R10 to 4 bits: which lanes of mask v are set.
#define LANES(v) \
	VAND  V29.B16, v.B16, V30.B16 \
	VADDV V30.S4, V30             \
	VMOV  V30.S[0], R10

// RELATIVE sets register d to the largest errors of the values v, divided by the least magnitudes.
#define RELATIVE(v, d) \
	VAND V27.B16, v.B16, V30.B16 \
	VFMAX_4S(23, 30, 30)         \
	VFMUL_4S(13, 30, 30)         \
	VFMUL_4S(24, 30, d)

// MULTIPLE sets register d to the lanes in which c (V15) times x is too far from an integer for c times t.
#define MULTIPLE(x, t, d) \
	VFMUL_4S(15, x, 0) \
	VFRINTN_4S(0, 1)   \
	VFABD_4S(1, 0, 0)  \
	VFMUL_4S(15, t, 1) \
	VFCMGT_4S(1, 0, d)

// func latticeGroupsBlock(mask *uint8, lo, hi *float32, least *uint32, t *float32, blocks int)
//
// Four groups are in lanes. Their four least magnitudes are sorted so far that the least comes first: the test holds for
// it always.
TEXT ·latticeGroupsBlock(SB), NOSPLIT, $0-48
	MOVD    mask+0(FP), R0
	MOVD    lo+8(FP), R1
	MOVD    hi+16(FP), R2
	MOVD    least+24(FP), R3
	MOVD    t+32(FP), R4
	MOVD    blocks+40(FP), R5
	VLD1R.P 4(R4), [V20.S4] // Inverse
	VLD1R.P 4(R4), [V21.S4] // Exempt
	VLD1R.P 4(R4), [V22.S4] // Smaller
	VLD1R.P 4(R4), [V23.S4] // Normal
	VLD1R   (R4), [V24.S4]  // Error
	MOVD    $0x3f800000, R6
	VDUP    R6, V25.S4
	MOVD    $0x35800000, R6 // 2^-20
	VDUP    R6, V26.S4
	MOVD    $0x7f800000, R6
	VDUP    R6, V27.S4
	VMOVI   $255, V28.B16   // -1
	MOVD    $0x0000000200000001, R6
	VMOV    R6, V29.D[0]
	MOVD    $0x0000000800000004, R6
	VMOV    R6, V29.D[1]
	VEOR    V31.B16, V31.B16, V31.B16
	MOVD    ZR, R6          // shift of the next 4 bits
	MOVD    ZR, R7          // mask

latticeGroups:
	VLD1.P 16(R1), [V0.S4]
	VLD1.P 16(R2), [V1.S4]
	VLD4.P 64(R3), [V4.S4, V5.S4, V6.S4, V7.S4]
	VFSUB_4S(0, 31, 0)
	VFMAX_4S(1, 0, 2) // extents
	VFMIN_4S(1, 0, 3)
	VFMUL_4S(22, 3, 3)
	VFADD_4S(3, 2, 2)
	VFMUL_4S(20, 2, 3) // bounds
	VUMIN  V4.S4, V5.S4, V8.S4
	VUMAX  V4.S4, V5.S4, V5.S4
	VUMIN  V6.S4, V7.S4, V9.S4
	VUMAX  V6.S4, V7.S4, V7.S4
	VUMIN  V8.S4, V9.S4, V4.S4
	VUMAX  V8.S4, V9.S4, V6.S4
	VSUB   V28.S4, V4.S4, V4.S4
	VSUB   V28.S4, V5.S4, V5.S4
	VSUB   V28.S4, V6.S4, V6.S4
	VSUB   V28.S4, V7.S4, V7.S4
	VUSHR  $1, V4.S4, V4.S4
	VUSHR  $1, V5.S4, V5.S4
	VUSHR  $1, V6.S4, V6.S4
	VUSHR  $1, V7.S4, V7.S4

	// V10: groups to test, V12: groups that may be on a lattice
	VFCMGE_4S(3, 4, 10)
	VFCMGE_4S(2, 21, 11)
	VORR   V11.B16, V10.B16, V10.B16
	VFCMGT_4S(31, 2, 11)
	VAND   V11.B16, V10.B16, V10.B16
	VFCMGT_4S(4, 23, 12)
	VAND   V10.B16, V12.B16, V12.B16
	VEOR   V12.B16, V10.B16, V10.B16
	LANES(V10)
	CBZ    R10, latticeStore

	VFDIV_4S(4, 25, 13)
	RELATIVE(V4, 14)
	VFADD_4S(26, 14, 14)
	RELATIVE(V5, 16)
	RELATIVE(V6, 17)
	RELATIVE(V7, 18)
	VFMUL_4S(13, 5, 5)
	VFMUL_4S(13, 6, 6)
	VFMUL_4S(13, 7, 7)
	VFMUL_4S(14, 5, 0)
	VFMUL_4S(14, 6, 1)
	VFMUL_4S(14, 7, 2)
	VFADD_4S(0, 16, 16)
	VFADD_4S(1, 17, 17)
	VFADD_4S(2, 18, 18)
	VMOV   V25.B16, V15.B16

latticeCount:
	MULTIPLE(5, 16, 8)
	MULTIPLE(6, 17, 9)
	MULTIPLE(7, 18, 11)
	VORR   V9.B16, V8.B16, V8.B16
	VORR   V11.B16, V8.B16, V8.B16
	VAND   V10.B16, V8.B16, V8.B16
	VEOR   V8.B16, V10.B16, V10.B16
	VORR   V10.B16, V12.B16, V12.B16
	VFADD_4S(25, 15, 15)
	VFMUL_4S(3, 15, 0)
	VFCMGE_4S(0, 4, 0)
	VAND   V0.B16, V8.B16, V10.B16
	LANES(V10)
	CBNZ   R10, latticeCount

latticeStore:
	LANES(V12)
	LSL    R6, R10
	ORR    R10, R7
	EOR    $4, R6
	CBNZ   R6, latticeGroups
	MOVB.P R7, 1(R0)
	MOVD   ZR, R7
	SUBS   $1, R5
	BNE    latticeGroups
	RET

// FLUSH8 adds the float32 lanes of registers a and b to the 8 float64 at R13 and moves R13 past them.
#define FLUSH8(a, b) \
	VLD1   (R13), [V8.D2, V9.D2, V10.D2, V11.D2] \
	VFCVTL_2D(a, 12)                             \
	VFCVTL2_2D(a, 13)                            \
	VFCVTL_2D(b, 14)                             \
	VFCVTL2_2D(b, 15)                            \
	EACH4(VFADD_2D, 12, 8, 8)                    \
	VST1.P [V8.D2, V9.D2, V10.D2, V11.D2], 64(R13)

// SUMCHUNK sets R12 to the smaller of R11 and 256, and subtracts R12 from R11.
#define SUMCHUNK \
	MOVD $256, R12         \
	CMP  R12, R11          \
	CSEL LO, R11, R12, R12 \
	SUB  R12, R11

// QUANTGROUP loads the scale, its inverse, the zero point and the limits of a group.
#define QUANTGROUP \
	VLD1R.P 4(R2), [V20.S4]  \
	VLD1R.P 4(R3), [V21.S4]  \
	MOVB    (R4), R13        \
	ADD     R5, R4           \
	VDUP    R13, V22.H8      \
	SUB     R13, R8, R14     \
	SCVTFWS R14, F23         \
	VDUP    V23.S[0], V23.S4 \
	SUB     R13, R9, R14     \
	SCVTFWS R14, F24         \
	VDUP    V24.S[0], V24.S4 \
	MOVD    R7, R11

// QUANTSTEPS sets V16-V19 to the codes of V12-V15, before the zero point is added, and V12-V15 to their steps.
#define QUANTSTEPS \
	WITH4(VFMAX_4S, 23, 12, 12)   \
	WITH4(VFMIN_4S, 24, 12, 12)   \
	EACH4OF(VFCVTNS_4S, 12, 16)   \
	EACH4OF(VSCVTF_4S, 16, 12)

// QUANTSTORE adds up the errors of the steps V12-V15 and stores the low bytes of the codes V16-V19, after the zero point
// is added in 16 bits.
#define QUANTSTORE \
	WITH4(VFMUL_4S, 20, 12, 12)   \
	EACH4(VFSUB_4S, 12, 8, 12)    \
	EACH4(VFMUL_4S, 12, 12, 12)   \
	EACH4(VFMUL_4S, 8, 8, 8)      \
	EACH4(VFADD_4S, 12, 0, 0)     \
	EACH4(VFADD_4S, 8, 4, 4)      \
	VUZP1  V17.H8, V16.H8, V16.H8 \
	VUZP1  V19.H8, V18.H8, V18.H8 \
	VADD   V22.H8, V16.H8, V16.H8 \
	VADD   V22.H8, V18.H8, V18.H8 \
	VUZP1  V18.B16, V16.B16, V16.B16 \
	VST1.P [V16.B16], 16(R0)

// QUANTFLUSH adds the sums of a group, or a part of it, to those of acc.
#define QUANTFLUSH \
	MOVD R10, R13 \
	FLUSH8(0, 1)  \
	FLUSH8(2, 3)  \
	FLUSH8(4, 5)  \
	FLUSH8(6, 7)

// func quantizeGroupsBlock(q *int8, x, scale, inv *float32, zero *int8, zeroStep, groups, group, qmin, qmax int, acc *float64)
TEXT ·quantizeGroupsBlock(SB), NOSPLIT, $0-88
	MOVD q+0(FP), R0
	MOVD x+8(FP), R1
	MOVD scale+16(FP), R2
	MOVD inv+24(FP), R3
	MOVD zero+32(FP), R4
	MOVD zeroStep+40(FP), R5
	MOVD groups+48(FP), R6
	MOVD group+56(FP), R7
	MOVD qmin+64(FP), R8
	MOVD qmax+72(FP), R9
	MOVD acc+80(FP), R10

group:
	QUANTGROUP

sums:
	CLEAR4(V0, V1, V2, V3) // V0-V3: noise
	CLEAR4(V4, V5, V6, V7) // V4-V7: signal
	SUMCHUNK

values:
	VLD1.P 64(R1), [V8.S4, V9.S4, V10.S4, V11.S4]
	WITH4(VFMUL_4S, 21, 8, 12)
	QUANTSTEPS
	QUANTSTORE
	SUBS   $16, R12
	BNE    values
	QUANTFLUSH
	CBNZ   R11, sums
	SUBS   $1, R6
	BNE    group
	RET

// func quantizeFractionsBlock(q *int8, x, scale, inv *float32, zero *int8, fraction *float32, zeroStep, groups, group, qmin, qmax int, acc *float64)
TEXT ·quantizeFractionsBlock(SB), NOSPLIT, $0-96
	MOVD q+0(FP), R0
	MOVD x+8(FP), R1
	MOVD scale+16(FP), R2
	MOVD inv+24(FP), R3
	MOVD zero+32(FP), R4
	MOVD fraction+40(FP), R15
	MOVD zeroStep+48(FP), R5
	MOVD groups+56(FP), R6
	MOVD group+64(FP), R7
	MOVD qmin+72(FP), R8
	MOVD qmax+80(FP), R9
	MOVD acc+88(FP), R10

group:
	QUANTGROUP
	VLD1R.P 4(R15), [V25.S4]

sums:
	CLEAR4(V0, V1, V2, V3)
	CLEAR4(V4, V5, V6, V7)
	SUMCHUNK

values:
	VLD1.P 64(R1), [V8.S4, V9.S4, V10.S4, V11.S4]
	WITH4(VFMUL_4S, 21, 8, 12)
	WITH4(VFADD_4S, 25, 12, 12)
	QUANTSTEPS
	WITH4(VFSUB_4S, 25, 12, 12)
	QUANTSTORE
	SUBS   $16, R12
	BNE    values
	QUANTFLUSH
	CBNZ   R11, sums
	SUBS   $1, R6
	BNE    group
	RET

// STEPS4 multiplies register x by the inverses in V8-V11, clamps to V12-V15 .. V16-V19 and rounds. The steps are in
// V22-V25.
#define STEPS4(x) \
	VFMUL_4S(8, x, 22)          \
	VFMUL_4S(9, x, 23)          \
	VFMUL_4S(10, x, 24)         \
	VFMUL_4S(11, x, 25)         \
	EACH4(VFMAX_4S, 12, 22, 22) \
	EACH4(VFMIN_4S, 16, 22, 22) \
	EACH4OF(VFRINTN_4S, 22, 22)

// func searchScalesBlock(s *float32, unit float32, x, w *float32, n int)
//
// A lane is a candidate. 16 candidates, in four registers, go through all values; then the other 16 do.
TEXT ·searchScalesBlock(SB), NOSPLIT, $0-40
	MOVD s+0(FP), R0
	MOVD $2, R3

half:
	MOVD   $unit+8(FP), R4
	VLD1R  (R4), [V20.S4]
	VLD1   (R0), [V8.S4, V9.S4, V10.S4, V11.S4]
	WITH4(VFMUL_4S, 20, 8, 8)
	ADD    $128, R0, R4
	VLD1   (R4), [V12.S4, V13.S4, V14.S4, V15.S4]
	ADD    $256, R0, R4
	VLD1   (R4), [V16.S4, V17.S4, V18.S4, V19.S4]
	ADD    $384, R0, R4 // Product
	ADD    $512, R0, R5 // Score
	CLEAR4(V26, V27, V28, V29)
	VST1   [V26.S4, V27.S4, V28.S4, V29.S4], (R4)
	VST1   [V26.S4, V27.S4, V28.S4, V29.S4], (R5)
	MOVD   x+16(FP), R1
	MOVD   w+24(FP), R2
	MOVD   n+32(FP), R11

sums:
	CLEAR4(V0, V1, V2, V3) // V0-V3: w*x*q
	CLEAR4(V4, V5, V6, V7) // V4-V7: w*q*q
	SUMCHUNK

values:
	VLD1R.P 4(R1), [V20.S4]
	VLD1R.P 4(R2), [V21.S4]
	STEPS4(20)
	WITH4(VFMUL_4S, 21, 22, 26)
	EACH4(VFMUL_4S, 26, 22, 22)
	WITH4(VFMUL_4S, 20, 26, 26)
	EACH4(VFADD_4S, 22, 4, 4)
	EACH4(VFADD_4S, 26, 0, 0)
	SUBS    $1, R12
	BNE     values

	VLD1 (R4), [V22.S4, V23.S4, V24.S4, V25.S4]
	EACH4(VFADD_4S, 22, 0, 0)
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R4)
	VLD1 (R5), [V22.S4, V23.S4, V24.S4, V25.S4]
	EACH4(VFADD_4S, 22, 4, 4)
	VST1 [V4.S4, V5.S4, V6.S4, V7.S4], (R5)
	CBNZ R11, sums

	EACH4(VFMUL_4S, 0, 0, 0)
	EACH4(VFDIV_4S, 4, 0, 0)
	VEOR V20.B16, V20.B16, V20.B16
	WITH4(VFMAXNM_4S, 20, 0, 0) // gives the zero for a NaN
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R5)
	ADD  $64, R0
	SUBS $1, R3
	BNE  half
	RET

// ADDSQUARES adds the squared distances of V22 and V23 from the value in V20, times the weight in V21, to registers a
// and b.
#define ADDSQUARES(a, b) \
	VFSUB_4S(22, 20, 22) \
	VFSUB_4S(23, 20, 23) \
	VFMUL_4S(22, 21, 24) \
	VFMUL_4S(23, 21, 25) \
	VFMUL_4S(22, 24, 24) \
	VFMUL_4S(23, 25, 25) \
	VFADD_4S(24, a, a)   \
	VFADD_4S(25, b, b)

// ADDERROR adds the weighted squared errors of the next value to registers a and b.
#define ADDERROR(a, b) \
	VLD1R.P 4(R1), [V20.S4] \
	VLD1R.P 4(R2), [V21.S4] \
	VFMUL_4S(6, 20, 22)     \
	VFMUL_4S(7, 20, 23)     \
	VFMAX_4S(2, 22, 22)     \
	VFMAX_4S(3, 23, 23)     \
	VFMIN_4S(4, 22, 22)     \
	VFMIN_4S(5, 23, 23)     \
	VFRINTN_4S(22, 22)      \
	VFRINTN_4S(23, 23)      \
	VFMUL_4S(0, 22, 22)     \
	VFMUL_4S(1, 23, 23)     \
	ADDSQUARES(a, b)

// func scaleErrorsBlock(f, x, w *float32, n int)
//
// The lanes of two registers are candidates. Values at even and at odd places have separate sums.
TEXT ·scaleErrorsBlock(SB), NOSPLIT, $0-32
	MOVD f+0(FP), R0
	MOVD x+8(FP), R1
	MOVD w+16(FP), R2
	MOVD n+24(FP), R11
	VLD1.P 64(R0), [V0.S4, V1.S4, V2.S4, V3.S4] // scale, lo
	VLD1.P 32(R0), [V4.S4, V5.S4]               // hi
	MOVD $0x3f800000, R4
	VDUP R4, V30.S4
	VFDIV_4S(0, 30, 6)
	VFDIV_4S(1, 30, 7)
	VEOR V12.B16, V12.B16, V12.B16 // V12-V13: totals
	VEOR V13.B16, V13.B16, V13.B16

sums:
	VEOR V8.B16, V8.B16, V8.B16    // V8-V9: even places
	VEOR V9.B16, V9.B16, V9.B16
	VEOR V10.B16, V10.B16, V10.B16 // V10-V11: odd places
	VEOR V11.B16, V11.B16, V11.B16
	SUMCHUNK
	SUBS $2, R12
	BLO  last

values:
	ADDERROR(8, 9)
	ADDERROR(10, 11)
	SUBS $2, R12
	BHS  values

last:
	ADDS $2, R12
	BEQ  total
	ADDERROR(8, 9)

total:
	VFADD_4S(10, 8, 8)
	VFADD_4S(11, 9, 9)
	VFADD_4S(8, 12, 12)
	VFADD_4S(9, 13, 13)
	CBNZ R11, sums
	VST1 [V12.S4, V13.S4], (R0)
	RET

// func sumSquaresBlock(sum *float64, x *float32, n int)
TEXT ·sumSquaresBlock(SB), NOSPLIT, $0-24
	MOVD x+8(FP), R1
	MOVD n+16(FP), R11

sums:
	CLEAR4(V0, V1, V2, V3)
	MOVD $16, R12

values:
	VLD1.P 64(R1), [V4.S4, V5.S4, V6.S4, V7.S4]
	EACH4(VFMUL_4S, 4, 4, 4)
	EACH4(VFADD_4S, 4, 0, 0)
	SUBS $1, R12
	BNE  values

	MOVD sum+0(FP), R13
	FLUSH8(0, 1)
	FLUSH8(2, 3)
	SUBS $256, R11
	BNE  sums
	RET

// func columnSumsBlock(sum, e, v *float32, n int)
TEXT ·columnSumsBlock(SB), NOSPLIT, $0-32
	MOVD sum+0(FP), R0
	MOVD e+8(FP), R1
	MOVD v+16(FP), R2
	MOVD n+24(FP), R3
	CLEAR4(V0, V1, V2, V3)
	CLEAR4(V4, V5, V6, V7)

factors:
	VLD1R.P 4(R2), [V16.S4]
	VLD1.P  64(R1), [V8.S4, V9.S4, V10.S4, V11.S4]
	VLD1.P  64(R1), [V12.S4, V13.S4, V14.S4, V15.S4]
	WITH4(VFMUL_4S, 16, 8, 8)
	WITH4(VFMUL_4S, 16, 12, 12)
	EACH4(VFADD_4S, 8, 0, 0)
	EACH4(VFADD_4S, 12, 4, 4)
	SUBS    $1, R3
	BNE     factors
	VST1.P  [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	VST1    [V4.S4, V5.S4, V6.S4, V7.S4], (R0)
	RET

// func columnCodesBlock(grids, values, shifts, codes, sums *float32)
TEXT ·columnCodesBlock(SB), NOSPLIT, $0-40
	MOVD   grids+0(FP), R0 // scales
	MOVD   values+8(FP), R1
	MOVD   shifts+16(FP), R2
	MOVD   codes+24(FP), R3
	MOVD   sums+32(FP), R4
	ADD    $128, R0, R5 // inverses
	ADD    $256, R0, R6 // zero points
	ADD    $384, R0, R7 // their integers
	ADD    $512, R0, R8 // offsets
	ADD    $640, R0, R9
	VLD1R.P 4(R9), [V29.S4] // half
	VLD1R.P 4(R9), [V30.S4] // least
	VLD1R   (R9), [V31.S4]  // most
	MOVD   $2, R10

lanes:
	VLD1   (R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1   (R2), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1.P 64(R4), [V8.S4, V9.S4, V10.S4, V11.S4]
	VLD1.P 64(R8), [V12.S4, V13.S4, V14.S4, V15.S4]
	VLD1.P 64(R5), [V16.S4, V17.S4, V18.S4, V19.S4]
	EACH4(VFADD_4S, 8, 4, 4)
	EACH4(VFADD_4S, 0, 4, 4) // targets
	EACH4(VFSUB_4S, 12, 4, 8)
	EACH4(VFMUL_4S, 16, 8, 8)
	WITH4(VFSUB_4S, 29, 8, 8)
	VLD1.P 64(R6), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1.P 64(R7), [V20.S4, V21.S4, V22.S4, V23.S4]
	EACH4(VFSUB_4S, 20, 16, 24)
	EACH4(VFADD_4S, 24, 8, 8)
	VFSUB_4S(20, 30, 24)
	VFSUB_4S(21, 30, 25)
	VFSUB_4S(22, 30, 26)
	VFSUB_4S(23, 30, 27)
	EACH4(VFMAX_4S, 24, 8, 8)
	VFSUB_4S(20, 31, 24)
	VFSUB_4S(21, 31, 25)
	VFSUB_4S(22, 31, 26)
	VFSUB_4S(23, 31, 27)
	EACH4(VFMIN_4S, 24, 8, 8)
	EACH4OF(VFRINTN_4S, 8, 8)
	EACH4(VFADD_4S, 20, 8, 8)
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], 64(R3)
	VLD1.P 64(R0), [V20.S4, V21.S4, V22.S4, V23.S4]
	EACH4(VFSUB_4S, 16, 8, 8)
	WITH4(VFADD_4S, 29, 8, 8)
	EACH4(VFMUL_4S, 20, 8, 8)
	EACH4(VFADD_4S, 12, 8, 8) // weights
	EACH4(VFSUB_4S, 8, 0, 0)
	EACH4(VFSUB_4S, 8, 4, 4)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R1)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R2)
	SUBS   $1, R10
	BNE    lanes
	RET

// func importanceBlock(w, x *float32, n int, inverse float32)
TEXT ·importanceBlock(SB), NOSPLIT, $0-28
	MOVD  w+0(FP), R0
	MOVD  x+8(FP), R1
	MOVD  n+16(FP), R2
	MOVD  $inverse+24(FP), R3
	VLD1R (R3), [V8.S4]
	MOVD  $0x3f800000, R4
	VDUP  R4, V9.S4

values:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	EACH4(VFMUL_4S, 0, 0, 0)
	WITH4(VFMUL_4S, 8, 0, 0)
	WITH4(VFADD_4S, 9, 0, 0)
	EACH4OF(VFSQRT_4S, 0, 0)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	SUBS   $16, R2
	BNE    values
	RET

// func fitRangesBlock(s *float32, unit, base, inverse, most float32, x, w *float32, n int)
//
// Lanes are candidates, 16 at a time as in searchScalesBlock.
TEXT ·fitRangesBlock(SB), NOSPLIT, $0-48
	MOVD  s+0(FP), R0
	MOVD  $2, R3
	MOVD  $most+20(FP), R4
	VLD1R (R4), [V30.S4]
	VEOR  V31.B16, V31.B16, V31.B16

half:
	MOVD  $unit+8(FP), R4
	VLD1R (R4), [V20.S4]
	MOVD  $base+12(FP), R4
	VLD1R (R4), [V21.S4]
	VLD1  (R0), [V8.S4, V9.S4, V10.S4, V11.S4]
	ADD   $128, R0, R4
	VLD1  (R4), [V22.S4, V23.S4, V24.S4, V25.S4] // Cut
	WITH4(VFMUL_4S, 20, 8, 8)
	WITH4(VFMUL_4S, 21, 8, 12)
	EACH4(VFSUB_4S, 22, 12, 12)
	CLEAR4(V0, V1, V2, V3)     // V0-V3: w*q
	CLEAR4(V4, V5, V6, V7)     // V4-V7: w*x*q
	CLEAR4(V16, V17, V18, V19) // V16-V19: w*q*q
	MOVD  x+24(FP), R1
	MOVD  w+32(FP), R2
	MOVD  n+40(FP), R11

values:
	VLD1R.P 4(R1), [V20.S4]
	VLD1R.P 4(R2), [V21.S4]
	VFMUL_4S(8, 20, 22)
	VFMUL_4S(9, 20, 23)
	VFMUL_4S(10, 20, 24)
	VFMUL_4S(11, 20, 25)
	EACH4(VFADD_4S, 12, 22, 22)
	WITH4(VFMAX_4S, 31, 22, 22)
	WITH4(VFMIN_4S, 30, 22, 22)
	EACH4OF(VFRINTN_4S, 22, 22)
	WITH4(VFMUL_4S, 21, 22, 26)
	EACH4(VFADD_4S, 26, 0, 0)
	EACH4(VFMUL_4S, 26, 22, 22)
	EACH4(VFADD_4S, 22, 16, 16)
	WITH4(VFMUL_4S, 20, 26, 26)
	EACH4(VFADD_4S, 26, 4, 4)
	SUBS    $1, R11
	BNE     values

	ADD   $256, R0, R4
	VST1  [V4.S4, V5.S4, V6.S4, V7.S4], (R4) // Product
	ADD   $384, R0, R4
	VST1  [V0.S4, V1.S4, V2.S4, V3.S4], (R4) // Sum
	MOVD  $inverse+16(FP), R4
	VLD1R (R4), [V20.S4]
	EACH4(VFMUL_4S, 0, 0, 0)
	WITH4(VFMUL_4S, 20, 0, 0)
	EACH4(VFSUB_4S, 0, 16, 16)
	EACH4(VFMUL_4S, 4, 4, 4)
	EACH4(VFDIV_4S, 16, 4, 4)
	WITH4(VFMAXNM_4S, 31, 4, 4) // gives the zero for a NaN
	ADD   $512, R0, R4
	VST1  [V4.S4, V5.S4, V6.S4, V7.S4], (R4) // Score
	ADD   $64, R0
	SUBS  $1, R3
	BNE   half
	RET

// ADDGRIDERROR adds the weighted squared errors of the next value to registers a and b.
#define ADDGRIDERROR(a, b) \
	VLD1R.P 4(R1), [V20.S4] \
	VLD1R.P 4(R2), [V21.S4] \
	VFSUB_4S(2, 20, 22)     \
	VFSUB_4S(3, 20, 23)     \
	VFMUL_4S(6, 22, 22)     \
	VFMUL_4S(7, 23, 23)     \
	VFMAX_4S(4, 22, 22)     \
	VFMAX_4S(4, 23, 23)     \
	VFMIN_4S(5, 22, 22)     \
	VFMIN_4S(5, 23, 23)     \
	VFRINTN_4S(22, 22)      \
	VFRINTN_4S(23, 23)      \
	VFMUL_4S(0, 22, 22)     \
	VFMUL_4S(1, 23, 23)     \
	VFADD_4S(2, 22, 22)     \
	VFADD_4S(3, 23, 23)     \
	ADDSQUARES(a, b)

// func gridErrorsBlock(f *float32, least, most float32, x, w *float32, n int)
//
// The lanes of two registers are candidates, with sums as in scaleErrorsBlock.
TEXT ·gridErrorsBlock(SB), NOSPLIT, $0-40
	MOVD   f+0(FP), R0
	MOVD   $least+8(FP), R4
	VLD1R  (R4), [V4.S4]
	MOVD   $most+12(FP), R4
	VLD1R  (R4), [V5.S4]
	MOVD   x+16(FP), R1
	MOVD   w+24(FP), R2
	MOVD   n+32(FP), R12
	VLD1.P 64(R0), [V0.S4, V1.S4, V2.S4, V3.S4] // scale, offset
	MOVD   $0x3f800000, R4
	VDUP   R4, V30.S4
	VFDIV_4S(0, 30, 6)
	VFDIV_4S(1, 30, 7)
	VEOR   V8.B16, V8.B16, V8.B16               // V8-V9: even places
	VEOR   V9.B16, V9.B16, V9.B16
	VEOR   V10.B16, V10.B16, V10.B16            // V10-V11: odd places
	VEOR   V11.B16, V11.B16, V11.B16
	SUBS   $2, R12
	BLO    last

values:
	ADDGRIDERROR(8, 9)
	ADDGRIDERROR(10, 11)
	SUBS $2, R12
	BHS  values

last:
	ADDS $2, R12
	BEQ  total
	ADDGRIDERROR(8, 9)

total:
	VFADD_4S(10, 8, 8)
	VFADD_4S(11, 9, 9)
	VST1 [V8.S4, V9.S4], (R0)
	RET
