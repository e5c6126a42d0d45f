//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "product_arm64.h"
#include "group_arm64.h"
#include "i8mm_arm64.h"
#include "i8mm_halves_arm64.h"

// Step.Row, Blocks and BlocksQAI4 by SMMLA, for 8 rows of activations.

// ROW_PAIR makes outputs of the sums of a pair of rows of activations: V16-V19 are the sums of codes, V20-V23 the
// scales, V24-V27 the biases of the panel as squares [w0, w1, w0, w1], V28 is Factor, V29 the NaN. R13 and R14 point to
// NegInt and Rec.
#define ROW_OUT(d, scales, bias) \
	VFMUL_4S(scales, 31, 30) \
	VFMUL_4S(30, d, d)       \
	VFADD_4S(bias, d, d)     \
	VFCMEQ_4S(d, d, 30)      \
	VBIF_16B(30, 29, d)

#define ROW_PAIR(d0, d1, d2, d3) \
	FMOVD.P 8(R13), F30                 \
	FMOVD.P 8(R14), F31                 \
	VZIP1   V30.S4, V30.S4, V30.S4      \
	VZIP1   V31.S4, V31.S4, V31.S4      \
	VMUL_4S(28, d0, d0)                 \
	VMUL_4S(28, d1, d1)                 \
	VMUL_4S(28, d2, d2)                 \
	VMUL_4S(28, d3, d3)                 \
	VMLA_4S(16, 30, d0)                 \
	VMLA_4S(17, 30, d1)                 \
	VMLA_4S(18, 30, d2)                 \
	VMLA_4S(19, 30, d3)                 \
	VSCVTF_4S(d0, d0)                   \
	VSCVTF_4S(d1, d1)                   \
	VSCVTF_4S(d2, d2)                   \
	VSCVTF_4S(d3, d3)                   \
	ROW_OUT(d0, 20, 24)             \
	ROW_OUT(d1, 21, 25)             \
	ROW_OUT(d2, 22, 26)             \
	ROW_OUT(d3, 23, 27)             \
	VZIPLOW_2D(d1, d0, 30)              \
	VZIPLOW_2D(d3, d2, 31)              \
	VST1.P  [V30.S4, V31.S4], (R10)(R11) \
	VZIPHIGH_2D(d1, d0, 30)             \
	VZIPHIGH_2D(d3, d2, 31)             \
	VST1.P  [V30.S4, V31.S4], (R10)(R11)

// SQUARES makes registers the squares of the 8 numbers at r.
#define SQUARES(r, d0, d1, d2, d3) \
	VLD1R.P 8(r), [d0.D2] \
	VLD1R.P 8(r), [d1.D2] \
	VLD1R.P 8(r), [d2.D2] \
	VLD1R.P 8(r), [d3.D2]

#define OUT_ROW_8 \
	MOVD  RowArgs_IntSums(R0), R13    \
	MOVD  RowArgs_Bias(R0), R14       \
	MOVD  RowArgs_Scales(R0), R4      \
	SQUARES(R13, V16, V17, V18, V19)  \
	SQUARES(R4, V20, V21, V22, V23)   \
	SQUARES(R14, V24, V25, V26, V27)  \
	MOVW  RowArgs_Factor(R0), R13     \
	VDUP  R13, V28.S4                 \
	SAME(NAN, V29)                    \
	MOVD  RowArgs_NegInt(R0), R13     \
	MOVD  RowArgs_Rec(R0), R14        \
	ROW_PAIR(0, 1, 2, 3)              \
	ROW_PAIR(4, 5, 6, 7)              \
	ROW_PAIR(8, 9, 10, 11)            \
	ROW_PAIR(12, 13, 14, 15)

// func row8I8MM(a *RowArgs)
TEXT ·row8I8MM(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_DOTS_8, STEP_DOTS_8, OUT_ROW_8)
	RET

// Blocks take the panel in two halves of 4 rows, see HALVES. R17 points to zero points, R19 to the scales and R20 to
// the sums of activations, as squares.

#define HALF_QAI4 \
	HALF_BLOCKS                          \
	MOVD BlocksQAI4Args_ActSums(R0), R20 \
	MOVD BlocksQAI4Args_Points(R0), R17  \
	ADD  R14, R17

// SCALE_BLOCKS adds the sums of a group times the scales of the panel times the scales of the activations.
#define SCALE_BLOCKS \
	VLD1R.P 8(R4), [V22.D2]                               \
	VLD1R.P (R4)(R16), [V23.D2]                           \
	VLD1.P  64(R19), [V16.S4, V17.S4, V18.S4, V19.S4]     \
	VFMUL_4S(22, 16, 24)                                  \
	VFMUL_4S(23, 16, 25)                                  \
	VFMUL_4S(22, 17, 26)                                  \
	VFMUL_4S(23, 17, 27)                                  \
	VFMUL_4S(22, 18, 28)                                  \
	VFMUL_4S(23, 18, 29)                                  \
	VFMUL_4S(22, 19, 20)                                  \
	VFMUL_4S(23, 19, 21)                                  \
	VFMADD_4S(24, 0, 8)                                   \
	VFMADD_4S(25, 1, 9)                                   \
	VFMADD_4S(26, 2, 10)                                  \
	VFMADD_4S(27, 3, 11)                                  \
	VFMADD_4S(28, 4, 12)                                  \
	VFMADD_4S(29, 5, 13)                                  \
	VFMADD_4S(20, 6, 14)                                  \
	VFMADD_4S(21, 7, 15)

// ADD_POINTS adds the zero points of the panel times the sums of the activations.
#define ADD_POINTS \
	VLD1R.P 8(R17), [V20.D2]                          \
	VLD1R.P (R17)(R16), [V21.D2]                      \
	VLD1.P  64(R20), [V16.S4, V17.S4, V18.S4, V19.S4] \
	VFMADD_4S(20, 16, 8)                              \
	VFMADD_4S(21, 16, 9)                              \
	VFMADD_4S(20, 17, 10)                             \
	VFMADD_4S(21, 17, 11)                             \
	VFMADD_4S(20, 18, 12)                             \
	VFMADD_4S(21, 18, 13)                             \
	VFMADD_4S(20, 19, 14)                             \
	VFMADD_4S(21, 19, 15)

#define TIMES_16 \
	VSHL $4, V0.S4, V0.S4 \
	VSHL $4, V1.S4, V1.S4 \
	VSHL $4, V2.S4, V2.S4 \
	VSHL $4, V3.S4, V3.S4 \
	VSHL $4, V4.S4, V4.S4 \
	VSHL $4, V5.S4, V5.S4 \
	VSHL $4, V6.S4, V6.S4 \
	VSHL $4, V7.S4, V7.S4

#define FINISH_BLOCKS \
	TO_FLOAT \
	SCALE_BLOCKS

#define FINISH_SHORT_BLOCKS \
	MAGIC_TO_FLOAT \
	SCALE_BLOCKS

#define FINISH_QAI4 \
	TIMES_16   \
	TO_FLOAT   \
	ADD_POINTS \
	SCALE_BLOCKS

#define FINISH_SHORT_QAI4 \
	MAGIC_TO_FLOAT \
	ADD_POINTS     \
	SCALE_BLOCKS

#define NUMBER(d) \
	VFCMEQ_4S(d, d, 18) \
	VBIF_16B(18, 30, d)

// BLOCK_ROWS writes the 4 outputs of a pair of rows of activations whose squares are f0 and f1, after ADD has added the
// biases.
#define BLOCK_ROWS(ADD, f0, f1) \
	VZIPLOW_2D(f1, f0, 16)      \
	VZIPHIGH_2D(f1, f0, 17)     \
	ADD                         \
	NUMBER(16)                  \
	NUMBER(17)                  \
	VST1.P [V16.S4], (R10)(R11) \
	VST1.P [V17.S4], (R10)(R11)

#define NO_BIAS

#define ADD_BIAS \
	VFADD_4S(20, 16, 16) \
	VFADD_4S(20, 17, 17)

#define OUT_BLOCKS \
	SAME(NAN, V30)             \
	BLOCK_ROWS(NO_BIAS, 8, 9)   \
	BLOCK_ROWS(NO_BIAS, 10, 11) \
	BLOCK_ROWS(NO_BIAS, 12, 13) \
	BLOCK_ROWS(NO_BIAS, 14, 15)

#define OUT_QAI4 \
	SAME(NAN, V30)                    \
	MOVD BlocksQAI4Args_Bias(R0), R13 \
	ADD  R14, R13                     \
	VLD1 (R13), [V20.S4]              \
	BLOCK_ROWS(ADD_BIAS, 8, 9)   \
	BLOCK_ROWS(ADD_BIAS, 10, 11) \
	BLOCK_ROWS(ADD_BIAS, 12, 13) \
	BLOCK_ROWS(ADD_BIAS, 14, 15)

// func blocks8I8MM(a *BlocksArgs)
TEXT ·blocks8I8MM(SB), NOSPLIT, $0-8
	MOVD $24, R16
	HALVES(EACH_GROUP, HALF_BLOCKS, ZERO_POINTS_8, STEP_8, FINISH_BLOCKS, OUT_BLOCKS)
	RET

// func blocksShort8I8MM(a *BlocksArgs)
TEXT ·blocksShort8I8MM(SB), NOSPLIT, $0-8
	MOVD $24, R16
	SAME(MAGIC, V31)
	HALVES(EACH_GROUP, HALF_BLOCKS, START_AT_MAGIC, STEP_8, FINISH_SHORT_BLOCKS, OUT_BLOCKS)
	RET

// func blocksQAI48I8MM(a *BlocksQAI4Args)
TEXT ·blocksQAI48I8MM(SB), NOSPLIT, $0-8
	MOVD $24, R16
	HALVES(EACH_GROUP, HALF_QAI4, ZERO_POINTS_8, STEP_8, FINISH_QAI4, OUT_QAI4)
	RET

// func blocksShortQAI48I8MM(a *BlocksQAI4Args)
TEXT ·blocksShortQAI48I8MM(SB), NOSPLIT, $0-8
	MOVD $24, R16
	SAME(MAGIC_16, V31)
	HALVES(EACH_GROUP, HALF_QAI4, START_AT_MAGIC, STEP_8, FINISH_SHORT_QAI4, OUT_QAI4)
	RET
