//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "product_arm64.h"
#include "group_arm64.h"

// Products by SMULL, ARMv8.0. A register with two rows of 8 codes times the same 8 activations twice gives 8 products
// of 16 bits for each row. SADALP adds pairs of products to the row's 4 sums of 32 bits.
//
// NARROW multiplies w0 and w1, the codes of two rows in the two chunks of a step, with the activations a0 and a1, and
// adds to d0 and d1. Two products fit 16 bits where codes have 7 bits at most: 2 * 128 * 64 = 2^14. WIDE is for 8 bits.

#define NARROW(w0, w1, a0, a1, d0, d1, t0, t1) \
	VSMULL_8H(a0, w0, t0)  \
	VSMULL2_8H(a0, w0, t1) \
	VSMLAL_8H(a1, w1, t0)  \
	VSMLAL2_8H(a1, w1, t1) \
	VSADALP_4S(t0, d0)     \
	VSADALP_4S(t1, d1)

#define WIDE(w0, w1, a0, a1, d0, d1, t0, t1) \
	VSMULL_8H(a0, w0, t0)  \
	VSMULL2_8H(a0, w0, t1) \
	VSADALP_4S(t0, d0)     \
	VSADALP_4S(t1, d1)     \
	VSMULL_8H(a1, w1, t0)  \
	VSMULL2_8H(a1, w1, t1) \
	VSADALP_4S(t0, d0)     \
	VSADALP_4S(t1, d1)

// LOAD_ROWS_x loads 4 rows of codes in the two chunks of a step, V20-V21 and V22-V23.
#define LOAD_ROWS_0 \
	FLDPQ (R2), (F20, F21) \
	FLDPQ 64(R2), (F22, F23)

#define LOAD_ROWS_4 \
	FLDPQ 32(R2), (F20, F21) \
	FLDPQ 96(R2), (F22, F23) \
	ADD   $128, R2

// SUM_8 adds up each of the 8 registers of sums of a row of activations: d0 and d4 are the sums of the panel's rows.
#define SUM_8(d0, d1, d2, d3, d4, d5, d6, d7) \
	VADDP_4S(d1, d0, d0) \
	VADDP_4S(d3, d2, d2) \
	VADDP_4S(d5, d4, d4) \
	VADDP_4S(d7, d6, d6) \
	VADDP_4S(d2, d0, d0) \
	VADDP_4S(d6, d4, d4)

#define LOAD_ZEROS \
	VLD1 (R7), [V20.S4, V21.S4] \
	ADD  R9, R7

// ZERO_POINTS subtracts zero points times the sum of activations, element lane of V16.
#define ZERO_POINTS(lane, d0, d1) \
	VMLSLANE_4S(lane, 16, 20, d0) \
	VMLSLANE_4S(lane, 16, 21, d1)

// 2 rows of activations: V0-V7 are the sums of the first row, V8-V15 the sums of the second, V16-V19 the activations of
// a step by chunk and row. V28-V31 are the float32 sums of the groups.

#define CLEAR_2 \
	CLEAR_4(0, 1, 2, 3)   \
	CLEAR_4(4, 5, 6, 7)   \
	CLEAR_4(8, 9, 10, 11) \
	CLEAR_4(12, 13, 14, 15)

#define STEP_2(PRODUCT) \
	VLD4R.P 32(R1), [V16.D2, V17.D2, V18.D2, V19.D2] \
	LOAD_ROWS_0                                      \
	PRODUCT(20, 22, 16, 18, 0, 1, 24, 25)            \
	PRODUCT(20, 22, 17, 19, 8, 9, 26, 27)            \
	PRODUCT(21, 23, 16, 18, 2, 3, 24, 25)            \
	PRODUCT(21, 23, 17, 19, 10, 11, 26, 27)          \
	LOAD_ROWS_4                                      \
	PRODUCT(20, 22, 16, 18, 4, 5, 24, 25)            \
	PRODUCT(20, 22, 17, 19, 12, 13, 26, 27)          \
	PRODUCT(21, 23, 16, 18, 6, 7, 24, 25)            \
	PRODUCT(21, 23, 17, 19, 14, 15, 26, 27)

#define STEP_2_NARROW STEP_2(NARROW)
#define STEP_2_WIDE STEP_2(WIDE)

#define ZEROS_2 \
	LOAD_ZEROS           \
	FMOVD.P 8(R8), F16   \
	ZERO_POINTS(0, 0, 4) \
	ZERO_POINTS(1, 8, 12)

#define SUMS_2 \
	SUM_8(0, 1, 2, 3, 4, 5, 6, 7)       \
	SUM_8(8, 9, 10, 11, 12, 13, 14, 15) \
	CBNZ R12, symmetric                 \
	ZEROS_2                             \
symmetric:

#define SUMS_SHIFTED_2 \
	SUM_8(0, 1, 2, 3, 4, 5, 6, 7)       \
	SUM_8(8, 9, 10, 11, 12, 13, 14, 15) \
	LOAD_SHIFT(V22)                     \
	VUSHL_4S(22, 0, 0)                  \
	VUSHL_4S(22, 4, 4)                  \
	VUSHL_4S(22, 8, 8)                  \
	VUSHL_4S(22, 12, 12)                \
	ZEROS_2

#define STORE_2 \
	SUMS_2              \
	FMOVQ F0, (R10)     \
	FMOVQ F4, 16(R10)   \
	ADD   R11, R10, R13 \
	FMOVQ F8, (R13)     \
	FMOVQ F12, 16(R13)  \
	ADD   $32, R10

#define SCALE_2 \
	VSCVTF_4S(0, 0)                 \
	VSCVTF_4S(4, 4)                 \
	VSCVTF_4S(8, 8)                 \
	VSCVTF_4S(12, 12)               \
	VLD1.P 32(R4), [V20.S4, V21.S4] \
	VFMLA  V20.S4, V0.S4, V28.S4    \
	VFMLA  V21.S4, V4.S4, V29.S4    \
	VFMLA  V20.S4, V8.S4, V30.S4    \
	VFMLA  V21.S4, V12.S4, V31.S4

#define FINISH_2 \
	SUMS_2 \
	SCALE_2

#define FINISH_SHIFTED_2 \
	SUMS_SHIFTED_2 \
	SCALE_2

// func dots2NarrowNEON(a *Args)
TEXT ·dots2NarrowNEON(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_2, STEP_2_NARROW, STORE_2)
	RET

// func dots2WideNEON(a *Args)
TEXT ·dots2WideNEON(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_2, STEP_2_WIDE, STORE_2)
	RET

#define GROUP_2(STEP, FINISH) \
	GROUP_ARGS                           \
	CLEAR_4(28, 29, 30, 31)              \
	EACH_GROUP(CLEAR_2, STEP, FINISH)    \
	PANEL_NUMBERS                        \
	FMOVD (R13), F24                     \
	FMOVD (R14), F25                     \
	FINAL(28, 20, 22, 24, 25, 0, 26, 27) \
	FINAL(29, 21, 23, 24, 25, 0, 26, 27) \
	FINAL(30, 20, 22, 24, 25, 1, 26, 27) \
	FINAL(31, 21, 23, 24, 25, 1, 26, 27) \
	VST1.P [V28.S4, V29.S4], (R10)(R11)  \
	VST1   [V30.S4, V31.S4], (R10)

// func group2NarrowNEON(a *GroupArgs)
TEXT ·group2NarrowNEON(SB), NOSPLIT, $0-8
	GROUP_2(STEP_2_NARROW, FINISH_2)
	RET

// func shifted2NarrowNEON(a *ShiftedArgs)
TEXT ·shifted2NarrowNEON(SB), NOSPLIT, $0-8
	GROUP_2(STEP_2_NARROW, FINISH_SHIFTED_2)
	RET

// func group2WideNEON(a *GroupArgs)
TEXT ·group2WideNEON(SB), NOSPLIT, $0-8
	GROUP_2(STEP_2_WIDE, FINISH_2)
	RET

// One row: V0-V7 are its sums, V16-V17 the activations of a step. V28-V29 are the float32 sums of the groups.

#define CLEAR_1 \
	CLEAR_4(0, 1, 2, 3) \
	CLEAR_4(4, 5, 6, 7)

#define STEP_1(PRODUCT) \
	VLD2R.P 16(R1), [V16.D2, V17.D2]      \
	LOAD_ROWS_0                           \
	PRODUCT(20, 22, 16, 17, 0, 1, 24, 25) \
	PRODUCT(21, 23, 16, 17, 2, 3, 26, 27) \
	LOAD_ROWS_4                           \
	PRODUCT(20, 22, 16, 17, 4, 5, 24, 25) \
	PRODUCT(21, 23, 16, 17, 6, 7, 26, 27)

#define STEP_1_NARROW STEP_1(NARROW)
#define STEP_1_WIDE STEP_1(WIDE)

#define ZEROS_1 \
	LOAD_ZEROS         \
	FMOVS.P 4(R8), F16 \
	ZERO_POINTS(0, 0, 4)

#define SUMS_1 \
	SUM_8(0, 1, 2, 3, 4, 5, 6, 7) \
	CBNZ R12, symmetric           \
	ZEROS_1                       \
symmetric:

#define SUMS_SHIFTED_1 \
	SUM_8(0, 1, 2, 3, 4, 5, 6, 7) \
	LOAD_SHIFT(V22)               \
	VUSHL_4S(22, 0, 0)            \
	VUSHL_4S(22, 4, 4)            \
	ZEROS_1

#define STORE_1 \
	SUMS_1            \
	FMOVQ F0, (R10)   \
	FMOVQ F4, 16(R10) \
	ADD   $32, R10

#define SCALE_1 \
	VSCVTF_4S(0, 0)                 \
	VSCVTF_4S(4, 4)                 \
	VLD1.P 32(R4), [V20.S4, V21.S4] \
	VFMLA  V20.S4, V0.S4, V28.S4    \
	VFMLA  V21.S4, V4.S4, V29.S4

#define FINISH_1 \
	SUMS_1 \
	SCALE_1

#define FINISH_SHIFTED_1 \
	SUMS_SHIFTED_1 \
	SCALE_1

// func dots1NarrowNEON(a *Args)
TEXT ·dots1NarrowNEON(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_1, STEP_1_NARROW, STORE_1)
	RET

// func dots1WideNEON(a *Args)
TEXT ·dots1WideNEON(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_1, STEP_1_WIDE, STORE_1)
	RET

#define GROUP_1(STEP, FINISH) \
	GROUP_ARGS                           \
	VZERO(28)                            \
	VZERO(29)                            \
	EACH_GROUP(CLEAR_1, STEP, FINISH)    \
	PANEL_NUMBERS                        \
	FMOVS (R13), F24                     \
	FMOVS (R14), F25                     \
	FINAL(28, 20, 22, 24, 25, 0, 26, 27) \
	FINAL(29, 21, 23, 24, 25, 0, 26, 27) \
	VST1  [V28.S4, V29.S4], (R10)

// func group1NarrowNEON(a *GroupArgs)
TEXT ·group1NarrowNEON(SB), NOSPLIT, $0-8
	GROUP_1(STEP_1_NARROW, FINISH_1)
	RET

// func shifted1NarrowNEON(a *ShiftedArgs)
TEXT ·shifted1NarrowNEON(SB), NOSPLIT, $0-8
	GROUP_1(STEP_1_NARROW, FINISH_SHIFTED_1)
	RET

// func group1WideNEON(a *GroupArgs)
TEXT ·group1WideNEON(SB), NOSPLIT, $0-8
	GROUP_1(STEP_1_WIDE, FINISH_1)
	RET
