//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "product_arm64.h"
#include "group_arm64.h"
#include "i8mm_arm64.h"
#include "i8mm_halves_arm64.h"

// Groups by SMMLA, see i8mm_arm64.s. V0-V7 are the sums of a group, V8-V15 the float32 sums of all groups, in the same
// squares. Scales multiply them as [s0, s1, s0, s1].

// 8 rows in two halves, see i8mm_halves_arm64.h.

#define ADD_ZERO_POINTS_8 \
	ZERO_SQUARES_8     \
	VMLA_4S(20, 16, 0) \
	VMLA_4S(21, 16, 1) \
	VMLA_4S(20, 17, 2) \
	VMLA_4S(21, 17, 3) \
	VMLA_4S(20, 18, 4) \
	VMLA_4S(21, 18, 5) \
	VMLA_4S(20, 19, 6) \
	VMLA_4S(21, 19, 7)

#define SCALE_8 \
	VLD1R.P 8(R4), [V22.D2]       \
	VLD1R.P (R4)(R16), [V23.D2]   \
	VFMLA   V22.S4, V0.S4, V8.S4  \
	VFMLA   V23.S4, V1.S4, V9.S4  \
	VFMLA   V22.S4, V2.S4, V10.S4 \
	VFMLA   V23.S4, V3.S4, V11.S4 \
	VFMLA   V22.S4, V4.S4, V12.S4 \
	VFMLA   V23.S4, V5.S4, V13.S4 \
	VFMLA   V22.S4, V6.S4, V14.S4 \
	VFMLA   V23.S4, V7.S4, V15.S4

#define FINISH_SHORT_8 \
	MAGIC_TO_FLOAT \
	SCALE_8

#define FINISH_8 \
	TO_FLOAT \
	SCALE_8

#define FINISH_SHIFTED_8 \
	SHIFT_SUMS        \
	ADD_ZERO_POINTS_8 \
	FINISH_8

// ROWS writes the 4 outputs of a pair of rows of activations whose squares are f0 and f1.
#define ROWS(f0, f1, negZero, rec, lane0, lane1) \
	VZIPLOW_2D(f1, f0, 16)                         \
	VZIPHIGH_2D(f1, f0, 17)                        \
	FINAL(16, 20, 21, negZero, rec, lane0, 30, 18) \
	FINAL(17, 20, 21, negZero, rec, lane1, 30, 19) \
	VST1.P [V16.S4], (R10)(R11)                    \
	VST1.P [V17.S4], (R10)(R11)

#define OUT_8 \
	HALF_NUMBERS \
	ROWS(8, 9, 24, 26, 0, 1)   \
	ROWS(10, 11, 24, 26, 2, 3) \
	ROWS(12, 13, 25, 27, 0, 1) \
	ROWS(14, 15, 25, 27, 2, 3)

// func group8I8MM(a *GroupArgs)
TEXT ·group8I8MM(SB), NOSPLIT, $0-8
	MOVD $24, R16
	GROUP_8(ZERO_POINTS_8, STEP_8, FINISH_8, OUT_8)
	RET

// func groupShort8I8MM(a *GroupArgs)
TEXT ·groupShort8I8MM(SB), NOSPLIT, $0-8
	MOVD $24, R16
	SAME(MAGIC, V31)
	GROUP_8(START_AT_MAGIC, STEP_8, FINISH_SHORT_8, OUT_8)
	RET

// func shifted8I8MM(a *ShiftedArgs)
TEXT ·shifted8I8MM(SB), NOSPLIT, $0-8
	MOVD a+0(FP), R0
	LOAD_SHIFT(V31)
	MOVD $24, R16
	GROUP_8(CLEAR_GROUP, STEP_8, FINISH_SHIFTED_8, OUT_8)
	RET

// 4 rows.

#define SCALE_PAIR(d0, d1, d2, d3, f0, f1, f2, f3) \
	VFMADD_4S(20, d0, f0) \
	VFMADD_4S(21, d1, f1) \
	VFMADD_4S(22, d2, f2) \
	VFMADD_4S(23, d3, f3)

#define LOAD_SCALES \
	VLD1R.P 8(R4), [V20.D2] \
	VLD1R.P 8(R4), [V21.D2] \
	VLD1R.P 8(R4), [V22.D2] \
	VLD1R.P 8(R4), [V23.D2]

#define SCALE_4 \
	LOAD_SCALES                          \
	SCALE_PAIR(0, 1, 2, 3, 8, 9, 10, 11) \
	SCALE_PAIR(4, 5, 6, 7, 12, 13, 14, 15)

#define FINISH_SHORT_4 \
	MAGIC_TO_FLOAT \
	SCALE_4

#define FINISH_4 \
	TO_FLOAT \
	SCALE_4

#define FINISH_SHIFTED_4 \
	SHIFT_SUMS                      \
	LOAD_ZEROS                      \
	SQUARE_SUMS_4                   \
	ADD_ZERO_POINTS(16, 0, 1, 2, 3) \
	ADD_ZERO_POINTS(17, 4, 5, 6, 7) \
	FINISH_4

// PANEL_ROWS writes the 8 outputs of a pair of rows of activations whose squares are f0 to f3.
#define PANEL_ROWS(f0, f1, f2, f3, lane0, lane1) \
	VZIPLOW_2D(f1, f0, 16)                   \
	VZIPLOW_2D(f3, f2, 17)                   \
	VZIPHIGH_2D(f1, f0, 18)                  \
	VZIPHIGH_2D(f3, f2, 19)                  \
	FINAL(16, 20, 22, 24, 25, lane0, 26, 27) \
	FINAL(17, 21, 23, 24, 25, lane0, 26, 27) \
	FINAL(18, 20, 22, 24, 25, lane1, 26, 27) \
	FINAL(19, 21, 23, 24, 25, lane1, 26, 27) \
	VST1.P [V16.S4, V17.S4], (R10)(R11)      \
	VST1.P [V18.S4, V19.S4], (R10)(R11)

#define OUT_4 \
	PANEL_ROWS(8, 9, 10, 11, 0, 1) \
	PANEL_ROWS(12, 13, 14, 15, 2, 3)

// func group4I8MM(a *GroupArgs)
TEXT ·group4I8MM(SB), NOSPLIT, $0-8
	GROUP_4(ZERO_POINTS_4, STEP_4, FINISH_4, OUT_4)
	RET

// func groupShort4I8MM(a *GroupArgs)
TEXT ·groupShort4I8MM(SB), NOSPLIT, $0-8
	SAME(MAGIC, V31)
	GROUP_4(START_AT_MAGIC, STEP_4, FINISH_SHORT_4, OUT_4)
	RET

// func shifted4I8MM(a *ShiftedArgs)
TEXT ·shifted4I8MM(SB), NOSPLIT, $0-8
	MOVD a+0(FP), R0
	LOAD_SHIFT(V31)
	GROUP_4(CLEAR_GROUP, STEP_4, FINISH_SHIFTED_4, OUT_4)
	RET

// 2 rows.

#define FINISH_2 \
	VSCVTF_4S(0, 0) \
	VSCVTF_4S(1, 1) \
	VSCVTF_4S(2, 2) \
	VSCVTF_4S(3, 3) \
	LOAD_SCALES     \
	SCALE_PAIR(0, 1, 2, 3, 8, 9, 10, 11)

#define CLEAR_2 \
	CLEAR_4(0, 1, 2, 3)

#define FINISH_SHIFTED_2 \
	VUSHL_4S(31, 0, 0)              \
	VUSHL_4S(31, 1, 1)              \
	VUSHL_4S(31, 2, 2)              \
	VUSHL_4S(31, 3, 3)              \
	LOAD_ZEROS                      \
	SQUARE_SUMS_2                   \
	ADD_ZERO_POINTS(16, 0, 1, 2, 3) \
	FINISH_2

#define GROUP_2(CLEAR, FINISH) \
	CLEAR_4(8, 9, 10, 11)             \
	EACH_GROUP(CLEAR, STEP_2, FINISH) \
	PANEL_NUMBERS                     \
	FMOVD (R13), F24                  \
	FMOVD (R14), F25                  \
	PANEL_ROWS(8, 9, 10, 11, 0, 1)

// func group2I8MM(a *GroupArgs)
TEXT ·group2I8MM(SB), NOSPLIT, $0-8
	GROUP_ARGS
	GROUP_2(ZERO_POINTS_2, FINISH_2)
	RET

// func shifted2I8MM(a *ShiftedArgs)
TEXT ·shifted2I8MM(SB), NOSPLIT, $0-8
	GROUP_ARGS
	LOAD_SHIFT(V31)
	GROUP_2(CLEAR_2, FINISH_SHIFTED_2)
	RET
