//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "product_arm64.h"
#include "group_arm64.h"
#include "dotprod_arm64.h"
#include "row_arm64.h"

// Groups by SDOT, see dotprod_arm64.h.

// 8 rows take the panel in two halves of 4 rows, see GROUP_8: the codes of a chunk are in V20-V21 or
// V28-V29, activations in V16-V19 and V24-V27.

#define LOAD_ZEROS_8 \
	VLD1   (R7), [V20.S4]           \
	ADD    R9, R7                   \
	VNEG_4S(20, 20)                 \
	VLD1.P 32(R8), [V16.S4, V17.S4]

#define ZERO_POINTS_8 \
	LOAD_ZEROS_8                    \
	ZERO_POINTS(20, 16, 0, 1, 2, 3) \
	ZERO_POINTS(20, 17, 4, 5, 6, 7)

#define CHUNK_8(a0, a1, a2, a3, w, x) \
	FIRST(a0, w, 0, 1) \
	FIRST(a1, w, 2, 3) \
	FIRST(a2, w, 4, 5) \
	FIRST(a3, w, 6, 7) \
	OTHER(a0, x, 0, 1) \
	OTHER(a1, x, 2, 3) \
	OTHER(a2, x, 4, 5) \
	OTHER(a3, x, 6, 7)

#define STEP_8 \
	VLD1.P 64(R1), [V16.B16, V17.B16, V18.B16, V19.B16] \
	VLD1.P (R2)(R15), [V20.B16, V21.B16]                \
	VLD1.P 64(R1), [V24.B16, V25.B16, V26.B16, V27.B16] \
	VLD1.P (R2)(R15), [V28.B16, V29.B16]                \
	CHUNK_8(16, 17, 18, 19, 20, 21)                     \
	CHUNK_8(24, 25, 26, 27, 28, 29)

#define SCALE_8 \
	VLD1.P (R4)(R16), [V20.S4]  \
	VFMLA V20.S4, V0.S4, V8.S4  \
	VFMLA V20.S4, V1.S4, V9.S4  \
	VFMLA V20.S4, V2.S4, V10.S4 \
	VFMLA V20.S4, V3.S4, V11.S4 \
	VFMLA V20.S4, V4.S4, V12.S4 \
	VFMLA V20.S4, V5.S4, V13.S4 \
	VFMLA V20.S4, V6.S4, V14.S4 \
	VFMLA V20.S4, V7.S4, V15.S4

#define FINISH_SHORT_8 \
	MAGIC_TO_FLOAT \
	SCALE_8

#define FINISH_8 \
	TO_FLOAT \
	SCALE_8

#define FINISH_SHIFTED_8 \
	SHIFT_SUMS                          \
	LOAD_ZEROS_8                        \
	ADD_ZERO_POINTS(20, 16, 0, 1, 2, 3) \
	ADD_ZERO_POINTS(20, 17, 4, 5, 6, 7) \
	FINISH_8

#define OUT_8 \
	HALF_NUMBERS \
	FINAL(8, 20, 21, 24, 26, 0, 30, 16)  \
	VST1.P [V8.S4], (R10)(R11)           \
	FINAL(9, 20, 21, 24, 26, 1, 30, 16)  \
	VST1.P [V9.S4], (R10)(R11)           \
	FINAL(10, 20, 21, 24, 26, 2, 30, 16) \
	VST1.P [V10.S4], (R10)(R11)          \
	FINAL(11, 20, 21, 24, 26, 3, 30, 16) \
	VST1.P [V11.S4], (R10)(R11)          \
	FINAL(12, 20, 21, 25, 27, 0, 30, 16) \
	VST1.P [V12.S4], (R10)(R11)          \
	FINAL(13, 20, 21, 25, 27, 1, 30, 16) \
	VST1.P [V13.S4], (R10)(R11)          \
	FINAL(14, 20, 21, 25, 27, 2, 30, 16) \
	VST1.P [V14.S4], (R10)(R11)          \
	FINAL(15, 20, 21, 25, 27, 3, 30, 16) \
	VST1.P [V15.S4], (R10)(R11)

// func group8DotProd(a *GroupArgs)
TEXT ·group8DotProd(SB), NOSPLIT, $0-8
	MOVD $32, R16
	GROUP_8(ZERO_POINTS_8, STEP_8, FINISH_8, OUT_8)
	RET

// func groupShort8DotProd(a *GroupArgs)
TEXT ·groupShort8DotProd(SB), NOSPLIT, $0-8
	MOVD $32, R16
	SAME(MAGIC, V31)
	GROUP_8(START_AT_MAGIC, STEP_8, FINISH_SHORT_8, OUT_8)
	RET

// func shifted8DotProd(a *ShiftedArgs)
TEXT ·shifted8DotProd(SB), NOSPLIT, $0-8
	MOVD a+0(FP), R0
	LOAD_SHIFT(V31)
	MOVD $32, R16
	GROUP_8(CLEAR_GROUP, STEP_8, FINISH_SHIFTED_8, OUT_8)
	RET

// Step.Blocks for 8 rows.

#define ADD_BLOCK(i, m, t, f) \
	VFMULLANE_4S(i, m, 20, 24) \
	VFMLA V24.S4, t.S4, f.S4

#define SCALE_BLOCKS_8 \
	VLD1.P (R4)(R16), [V20.S4]       \
	VLD1.P 32(R19), [V16.S4, V17.S4] \
	ADD_BLOCK(0, 16, V0, V8)         \
	ADD_BLOCK(1, 16, V1, V9)         \
	ADD_BLOCK(2, 16, V2, V10)        \
	ADD_BLOCK(3, 16, V3, V11)        \
	ADD_BLOCK(0, 17, V4, V12)        \
	ADD_BLOCK(1, 17, V5, V13)        \
	ADD_BLOCK(2, 17, V6, V14)        \
	ADD_BLOCK(3, 17, V7, V15)

#define FINISH_BLOCKS_8 \
	TO_FLOAT \
	SCALE_BLOCKS_8

#define FINISH_SHORT_BLOCKS_8 \
	MAGIC_TO_FLOAT \
	SCALE_BLOCKS_8

#define OUT_BLOCK(d, f) \
	VFCMEQ_4S(d, d, 16)  \
	VBIF_16B(16, 30, d)  \
	VST1.P [f.S4], (R10)(R11)

#define OUT_BLOCKS_8 \
	SAME(NAN, V30)     \
	OUT_BLOCK(8, V8)   \
	OUT_BLOCK(9, V9)   \
	OUT_BLOCK(10, V10) \
	OUT_BLOCK(11, V11) \
	OUT_BLOCK(12, V12) \
	OUT_BLOCK(13, V13) \
	OUT_BLOCK(14, V14) \
	OUT_BLOCK(15, V15)

// func blocks8DotProd(a *BlocksArgs)
TEXT ·blocks8DotProd(SB), NOSPLIT, $0-8
	MOVD $32, R16
	HALVES(EACH_GROUP, HALF_BLOCKS, ZERO_POINTS_8, STEP_8, FINISH_BLOCKS_8, OUT_BLOCKS_8)
	RET

// func blocksShort8DotProd(a *BlocksArgs)
TEXT ·blocksShort8DotProd(SB), NOSPLIT, $0-8
	MOVD $32, R16
	SAME(MAGIC, V31)
	HALVES(EACH_GROUP, HALF_BLOCKS, START_AT_MAGIC, STEP_8, FINISH_SHORT_BLOCKS_8, OUT_BLOCKS_8)
	RET

// func blocksPairs8DotProd(a *BlocksArgs)
TEXT ·blocksPairs8DotProd(SB), NOSPLIT, $0-8
	MOVD $32, R16
	SAME(MAGIC, V31)
	HALVES(EACH_PAIR, HALF_BLOCKS, START_AT_MAGIC, STEP_8, FINISH_SHORT_BLOCKS_8, OUT_BLOCKS_8)
	RET

// 4 rows.

#define SCALE_4 \
	VLD1.P 32(R4), [V20.S4, V21.S4] \
	VFMLA  V20.S4, V0.S4, V8.S4     \
	VFMLA  V21.S4, V1.S4, V9.S4     \
	VFMLA  V20.S4, V2.S4, V10.S4    \
	VFMLA  V21.S4, V3.S4, V11.S4    \
	VFMLA  V20.S4, V4.S4, V12.S4    \
	VFMLA  V21.S4, V5.S4, V13.S4    \
	VFMLA  V20.S4, V6.S4, V14.S4    \
	VFMLA  V21.S4, V7.S4, V15.S4

#define FINISH_SHORT_4 \
	MAGIC_TO_FLOAT \
	SCALE_4

#define FINISH_4 \
	TO_FLOAT \
	SCALE_4

#define FINISH_SHIFTED_4 \
	SHIFT_SUMS        \
	ADD_ZERO_POINTS_4 \
	FINISH_4

#define OUT_4 \
	ROW(8, 9, 0)                        \
	VST1.P [V8.S4, V9.S4], (R10)(R11)   \
	ROW(10, 11, 1)                      \
	VST1.P [V10.S4, V11.S4], (R10)(R11) \
	ROW(12, 13, 2)                      \
	VST1.P [V12.S4, V13.S4], (R10)(R11) \
	ROW(14, 15, 3)                      \
	VST1.P [V14.S4, V15.S4], (R10)(R11)

// func group4DotProd(a *GroupArgs)
TEXT ·group4DotProd(SB), NOSPLIT, $0-8
	GROUP_4(ZERO_POINTS_4, STEP_4, FINISH_4, OUT_4)
	RET

// func groupShort4DotProd(a *GroupArgs)
TEXT ·groupShort4DotProd(SB), NOSPLIT, $0-8
	SAME(MAGIC, V31)
	GROUP_4(START_AT_MAGIC, STEP_4, FINISH_SHORT_4, OUT_4)
	RET

// func shifted4DotProd(a *ShiftedArgs)
TEXT ·shifted4DotProd(SB), NOSPLIT, $0-8
	MOVD a+0(FP), R0
	LOAD_SHIFT(V31)
	GROUP_4(CLEAR_GROUP, STEP_4, FINISH_SHIFTED_4, OUT_4)
	RET

// One row, see row_arm64.h.

// func group1DotProd(a *GroupArgs)
TEXT ·group1DotProd(SB), NOSPLIT, $0-8
	GROUP_ARGS
	VZERO(8)
	VZERO(9)
	EACH_GROUP(CLEAR_1, STEP_1, FINISH_1)
	OUT_1
	RET

// func shifted1DotProd(a *ShiftedArgs)
TEXT ·shifted1DotProd(SB), NOSPLIT, $0-8
	GROUP_ARGS
	LOAD_SHIFT(V31)
	VZERO(8)
	VZERO(9)
	EACH_GROUP(CLEAR_1, STEP_1, FINISH_SHIFTED_1)
	OUT_1
	RET
