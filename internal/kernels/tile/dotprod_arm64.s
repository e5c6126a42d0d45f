//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "product_arm64.h"
#include "dotprod_arm64.h"
#include "group_arm64.h"
#include "row_arm64.h"

// 8 rows: of V0-V15, even registers are sums of the first 4 rows of the panel, odd registers sums of the other 4.

#define CLEAR_DOTS_8 \
	CBNZ   R12, symmetric              \
	LOAD_ZEROS                         \
	VLD1.P 32(R8), [V16.S4, V17.S4]    \
	ZERO_POINTS(20, 16, 0, 2, 4, 6)    \
	ZERO_POINTS(20, 17, 8, 10, 12, 14) \
	ZERO_POINTS(21, 16, 1, 3, 5, 7)    \
	ZERO_POINTS(21, 17, 9, 11, 13, 15) \
	B      cleared                     \
symmetric:                                 \
	CLEAR_4(0, 1, 2, 3)                \
	CLEAR_4(4, 5, 6, 7)                \
	CLEAR_4(8, 9, 10, 11)              \
	CLEAR_4(12, 13, 14, 15)            \
cleared:

#define CHUNK_DOTS_8(a0, a1, a2, a3, w0, x0, w1, x1) \
	FIRST(a0, w0, 0, 2)   \
	FIRST(a1, w0, 4, 6)   \
	FIRST(a2, w0, 8, 10)  \
	FIRST(a3, w0, 12, 14) \
	FIRST(a0, w1, 1, 3)   \
	FIRST(a1, w1, 5, 7)   \
	FIRST(a2, w1, 9, 11)  \
	FIRST(a3, w1, 13, 15) \
	OTHER(a0, x0, 0, 2)   \
	OTHER(a1, x0, 4, 6)   \
	OTHER(a2, x0, 8, 10)  \
	OTHER(a3, x0, 12, 14) \
	OTHER(a0, x1, 1, 3)   \
	OTHER(a1, x1, 5, 7)   \
	OTHER(a2, x1, 9, 11)  \
	OTHER(a3, x1, 13, 15)

// STEP_DOTS_8 loads single registers. On in-order cores they take half the cycles of loads of 4 registers; out-of-order
// cores do not care.
#define STEP_DOTS_8 \
	FMOVQ (R1), F16                                     \
	FMOVQ 16(R1), F17                                   \
	FMOVQ 32(R1), F18                                   \
	FMOVQ 48(R1), F19                                   \
	FMOVQ (R2), F20                                     \
	FMOVQ 16(R2), F21                                   \
	FMOVQ 32(R2), F22                                   \
	FMOVQ 48(R2), F23                                   \
	FMOVQ 64(R1), F28                                   \
	FMOVQ 80(R1), F29                                   \
	FMOVQ 96(R1), F30                                   \
	FMOVQ 112(R1), F31                                  \
	FMOVQ 64(R2), F24                                   \
	FMOVQ 80(R2), F25                                   \
	FMOVQ 96(R2), F26                                   \
	FMOVQ 112(R2), F27                                  \
	ADD   $128, R1                                      \
	ADD   $128, R2                                      \
	CHUNK_DOTS_8(16, 17, 18, 19, 20, 21, 22, 23)        \
	CHUNK_DOTS_8(28, 29, 30, 31, 24, 25, 26, 27)

#define STORE_DOTS_8 \
	MOVD   R10, R13                     \
	ADD    $32, R10                     \
	VST1.P [V0.S4, V1.S4], (R13)(R11)   \
	VST1.P [V2.S4, V3.S4], (R13)(R11)   \
	VST1.P [V4.S4, V5.S4], (R13)(R11)   \
	VST1.P [V6.S4, V7.S4], (R13)(R11)   \
	VST1.P [V8.S4, V9.S4], (R13)(R11)   \
	VST1.P [V10.S4, V11.S4], (R13)(R11) \
	VST1.P [V12.S4, V13.S4], (R13)(R11) \
	VST1.P [V14.S4, V15.S4], (R13)(R11)

// func dots8DotProd(a *Args)
TEXT ·dots8DotProd(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_DOTS_8, STEP_DOTS_8, STORE_DOTS_8)
	RET

// Row. V16-V17 are the sums of codes, V18-V19 the scales, V20-V21 the biases of the panel, V22 is Factor, V23 the NaN,
// V24-V25 are NegInt, V26-V27 Rec.

#define ROW_HALF(d, sums, scales, bias, negInt, rec, lane, t) \
	VMUL_4S(22, d, d)                  \
	VMLALANE_4S(lane, negInt, sums, d) \
	VFMULLANE_4S(lane, rec, scales, t) \
	VSCVTF_4S(d, d)                    \
	VFMUL_4S(t, d, d)                  \
	VFADD_4S(bias, d, d)               \
	VFCMEQ_4S(d, d, t)                 \
	VBIF_16B(t, 23, d)

#define ROW_BOTH(d0, d1, negInt, rec, lane) \
	ROW_HALF(d0, 16, 18, 20, negInt, rec, lane, 28) \
	ROW_HALF(d1, 17, 19, 21, negInt, rec, lane, 29)

#define OUT_ROW_8 \
	MOVD   RowArgs_IntSums(R0), R13     \
	VLD1   (R13), [V16.S4, V17.S4]      \
	MOVD   RowArgs_Scales(R0), R13      \
	VLD1   (R13), [V18.S4, V19.S4]      \
	MOVD   RowArgs_Bias(R0), R13        \
	VLD1   (R13), [V20.S4, V21.S4]      \
	MOVW   RowArgs_Factor(R0), R13      \
	VDUP   R13, V22.S4                  \
	SAME(NAN, V23)                      \
	MOVD   RowArgs_NegInt(R0), R13      \
	VLD1   (R13), [V24.S4, V25.S4]      \
	MOVD   RowArgs_Rec(R0), R13         \
	VLD1   (R13), [V26.S4, V27.S4]      \
	ROW_BOTH(0, 1, 24, 26, 0)           \
	ROW_BOTH(2, 3, 24, 26, 1)           \
	ROW_BOTH(4, 5, 24, 26, 2)           \
	ROW_BOTH(6, 7, 24, 26, 3)           \
	ROW_BOTH(8, 9, 25, 27, 0)           \
	ROW_BOTH(10, 11, 25, 27, 1)         \
	ROW_BOTH(12, 13, 25, 27, 2)         \
	ROW_BOTH(14, 15, 25, 27, 3)         \
	VST1.P [V0.S4, V1.S4], (R10)(R11)   \
	VST1.P [V2.S4, V3.S4], (R10)(R11)   \
	VST1.P [V4.S4, V5.S4], (R10)(R11)   \
	VST1.P [V6.S4, V7.S4], (R10)(R11)   \
	VST1.P [V8.S4, V9.S4], (R10)(R11)   \
	VST1.P [V10.S4, V11.S4], (R10)(R11) \
	VST1.P [V12.S4, V13.S4], (R10)(R11) \
	VST1.P [V14.S4, V15.S4], (R10)(R11)

// func row8DotProd(a *RowArgs)
TEXT ·row8DotProd(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_DOTS_8, STEP_DOTS_8, OUT_ROW_8)
	RET

// 4 rows.

#define CLEAR_DOTS_4 \
	CBNZ R12, symmetric \
	ZERO_POINTS_4       \
	B    cleared        \
symmetric:                  \
	CLEAR_4(0, 1, 2, 3) \
	CLEAR_4(4, 5, 6, 7) \
cleared:

#define STORE_DOTS_4 \
	MOVD   R10, R13                   \
	ADD    $32, R10                   \
	VST1.P [V0.S4, V1.S4], (R13)(R11) \
	VST1.P [V2.S4, V3.S4], (R13)(R11) \
	VST1.P [V4.S4, V5.S4], (R13)(R11) \
	VST1.P [V6.S4, V7.S4], (R13)(R11)

// func dots4DotProd(a *Args)
TEXT ·dots4DotProd(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_DOTS_4, STEP_4, STORE_DOTS_4)
	RET

// One row.

// func dots1DotProd(a *Args)
TEXT ·dots1DotProd(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_1, STEP_1, STORE_DOTS_1)
	RET
