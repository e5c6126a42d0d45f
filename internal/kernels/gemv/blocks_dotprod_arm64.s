//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "frame_arm64.h"
#include "lowbit_arm64.h"
#include "dotprod_arm64.h"
#include "tiles_arm64.h"

// Products of one row of activations that has a scale a group with 4-bit weights, by dot products: qsi4c32p-f16 and
// qai4c32p.

// R8 is the place in ActScales. It begins anew with each panel.
#define F16_CONSTS()                       \
	CONSTS4()                          \
	MOVD BlocksArgs_ActScales(R0), R8

#define F16_TAIL8()                        \
	MOVD BlocksArgs_ActScales(R0), R8  \
	STORE8()

#define F16_TAIL4()                        \
	MOVD BlocksArgs_ActScales(R0), R8  \
	STORE4()

// qsi4c32p-f16: F16 scales precede the codes of a group. V31 keeps them.
#define F16_START8()           \
	VLD1.P 16(R3), [V31.H8] \
	ZERO4()

#define F16_START4()          \
	VLD1.P 8(R3), [V31.B8] \
	ZERO2()

#define F16_EPILOGUE8()       \
	FMOVS.P 4(R8), F4     \
	VFCVTL_4S(31, 2)      \
	VFCVTL2_4S(31, 3)     \
	VSCVTF_4S_F(4, 0, 0)  \
	VSCVTF_4S_F(4, 1, 1)  \
	VFMUL_4S_0(4, 2, 2)   \
	VFMUL_4S_0(4, 3, 3)   \
	VFMLA_4S(2, 0, 28)    \
	VFMLA_4S(3, 1, 29)

#define F16_EPILOGUE4()      \
	FMOVS.P 4(R8), F4    \
	VFCVTL_4S(31, 2)     \
	VSCVTF_4S_F(4, 0, 0) \
	VFMUL_4S_0(4, 2, 2)  \
	VFMLA_4S(2, 0, 28)

#define F16_8(BLOCK, REDUCE) \
	GROUPS(F16_CONSTS, F16_START8, BLOCK, REDUCE, F16_EPILOGUE8, F16_EPILOGUE8, F16_TAIL8)

#define F16_4(BLOCK, REDUCE) \
	GROUPS(F16_CONSTS, F16_START4, BLOCK, REDUCE, F16_EPILOGUE4, F16_EPILOGUE4, F16_TAIL4)

// func f16Tile8x16Dotprod(a *BlocksArgs)
TEXT ·f16Tile8x16Dotprod(SB), NOSPLIT, $0-8
	F16_8(BLOCK4, PAIRS)

// func f16Tile8x8Dotprod(a *BlocksArgs)
TEXT ·f16Tile8x8Dotprod(SB), NOSPLIT, $0-8
	F16_8(BLOCK4_8X8, REDUCE4_8X8)

// func f16Tile4x16Dotprod(a *BlocksArgs)
TEXT ·f16Tile4x16Dotprod(SB), NOSPLIT, $0-8
	F16_4(BLOCK4_4X16, REDUCE4_4X16)

// func f16Tile4x8Dotprod(a *BlocksArgs)
TEXT ·f16Tile4x8Dotprod(SB), NOSPLIT, $0-8
	F16_4(BLOCK4_4X8, REDUCE4_4X8)

// qai4c32p: the zero points of a group, float32, and its scales, divided by 16, follow the codes. Biases follow the
// last group. R9 is the place in ActSums.
#define QAI4_ACTS()                      \
	MOVD QAI4Args_ActScales(R0), R8  \
	MOVD QAI4Args_ActSums(R0), R9

#define QAI4_CONSTS() \
	CONSTS4()     \
	QAI4_ACTS()

#define QAI4_EPILOGUE()               \
	VLD1.P 32(R3), [V2.S4, V3.S4] \
	FMOVS.P 4(R9), F4             \
	FMOVS.P 4(R8), F5             \
	VFMLA_4S_0(4, 2, 28)          \
	VFMUL_4S_0(5, 3, 3)           \
	VSCVTF_4S(0, 0)               \
	VFMLA_4S(3, 0, 28)

#define QAI4_TAIL()        \
	VLD1 (R3), [V0.S4] \
	VFADD_4S(0, 28, 28) \
	QAI4_ACTS()        \
	STORE4()

// func qai4c32p4x16Dotprod(a *QAI4Args)
TEXT ·qai4c32p4x16Dotprod(SB), NOSPLIT, $0-8
	GROUPS(QAI4_CONSTS, ZERO2, BLOCK4_4X16, REDUCE4_4X16, QAI4_EPILOGUE, QAI4_EPILOGUE, QAI4_TAIL)

// func qai4c32p4x8Dotprod(a *QAI4Args)
TEXT ·qai4c32p4x8Dotprod(SB), NOSPLIT, $0-8
	GROUPS(QAI4_CONSTS, ZERO2, BLOCK4_4X8, REDUCE4_4X8, QAI4_EPILOGUE, QAI4_EPILOGUE, QAI4_TAIL)
