//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "frame_arm64.h"
#include "lowbit_arm64.h"
#include "channel_arm64.h"
#include "dotprod_arm64.h"
#include "tiles_arm64.h"

// Products of one row of activations with 4-bit weights of the tiles 4x16x2, 4x8x2 and 8x8x2, by dot products: lowbit
// and qsi4cxp.

// The epilogues for 4 rows, see lowbit_arm64.h for 8 rows.
#define SCALES4()             \
	VLD1.P 8(R3), [V4.B8] \
	VSHLL_4S(4, 2)

#define EPILOGUE16_4()       \
	SCALES4()            \
	VSCVTF_4S_F(4, 0, 0) \
	VFMLA_4S(2, 0, 28)

#define ZEROS4()                \
	FMOVS.P 4(R3), F7       \
	VLD1R.P 4(R11), [V6.S4]

#define EPILOGUE_ZEROS16_4() \
	SCALES4()            \
	ZEROS4()             \
	VSXTL_8H(7, 7)       \
	VSXTL_4S(7, 4)       \
	VMUL_4S(6, 4, 4)     \
	VSSRA_4S(4, 0, 4)    \
	VSCVTF_4S(4, 0)      \
	VFMLA_4S(2, 0, 28)

#define EPILOGUE1_ZEROS16_4() \
	SCALES4()             \
	ZEROS4()              \
	VSSHLL_8H(4, 7, 7)    \
	VSMLAL_4S_0(6, 7, 0)  \
	VSCVTF_4S_F(4, 0, 0)  \
	VFMLA_4S(2, 0, 28)

// func lowbit4Tile4x16Dotprod(a *LowbitArgs)
TEXT ·lowbit4Tile4x16Dotprod(SB), NOSPLIT, $0-8
	GROUPS(CONSTS4, ZERO2, BLOCK4_4X16, REDUCE4_4X16, EPILOGUE16_4, EPILOGUE16_4, TAIL4)

// func lowbit4ZerosTile4x16Dotprod(a *LowbitArgs)
TEXT ·lowbit4ZerosTile4x16Dotprod(SB), NOSPLIT, $0-8
	GROUPS(CONSTS4, ZERO2, BLOCK4_4X16, REDUCE4_4X16, EPILOGUE_ZEROS16_4, EPILOGUE1_ZEROS16_4, TAIL4)

// func lowbit4Tile4x8Dotprod(a *LowbitArgs)
TEXT ·lowbit4Tile4x8Dotprod(SB), NOSPLIT, $0-8
	GROUPS(CONSTS4, ZERO2, BLOCK4_4X8, REDUCE4_4X8, EPILOGUE16_4, EPILOGUE16_4, TAIL4)

// func lowbit4ZerosTile4x8Dotprod(a *LowbitArgs)
TEXT ·lowbit4ZerosTile4x8Dotprod(SB), NOSPLIT, $0-8
	GROUPS(CONSTS4, ZERO2, BLOCK4_4X8, REDUCE4_4X8, EPILOGUE_ZEROS16_4, EPILOGUE1_ZEROS16_4, TAIL4)

// func lowbit4Tile8x8Dotprod(a *LowbitArgs)
TEXT ·lowbit4Tile8x8Dotprod(SB), NOSPLIT, $0-8
	GROUPS(CONSTS4, ZERO4, BLOCK4_8X8, REDUCE4_8X8, EPILOGUE16, EPILOGUE16, TAIL8)

// func lowbit4ZerosTile8x8Dotprod(a *LowbitArgs)
TEXT ·lowbit4ZerosTile8x8Dotprod(SB), NOSPLIT, $0-8
	GROUPS(CONSTS4, ZERO4, BLOCK4_8X8, REDUCE4_8X8, EPILOGUE_ZEROS16, EPILOGUE1_ZEROS16, TAIL8)

// qsi4cxp: one group a row, so four accumulators in a panel of 4 rows too.

#define CHANNEL4X16() NIBBLES4X16(22, 23)
#define CHANNEL4X8() NIBBLES4X8(22, 23)

#define TWO4X16()     \
	CHANNEL4X16() \
	CHANNEL4X16()

#define FINISH4X16()                \
	VADD V22.S4, V20.S4, V20.S4 \
	VADD V23.S4, V21.S4, V21.S4 \
	REDUCE4_4X16()              \
	WRITE4()

#define TWO4X8()     \
	CHANNEL4X8() \
	CHANNEL4X8()

#define FINISH4X8()                 \
	VADD V22.S4, V20.S4, V20.S4 \
	VADD V23.S4, V21.S4, V21.S4 \
	REDUCE4_4X8()               \
	WRITE4()

#define TWO8X8()     \
	BLOCK4_8X8() \
	BLOCK4_8X8()

#define FINISH8X8()   \
	REDUCE4_8X8() \
	WRITE8()

// func qsi4cxp4x16Dotprod(a *ChannelArgs)
TEXT ·qsi4cxp4x16Dotprod(SB), NOSPLIT, $0-8
	CHANNEL(CONSTS4, ZERO4, TWO4X16, CHANNEL4X16, FINISH4X16)

// func qsi4cxp4x8Dotprod(a *ChannelArgs)
TEXT ·qsi4cxp4x8Dotprod(SB), NOSPLIT, $0-8
	CHANNEL(CONSTS4, ZERO4, TWO4X8, CHANNEL4X8, FINISH4X8)

// func qsi4cxp8x8Dotprod(a *ChannelArgs)
TEXT ·qsi4cxp8x8Dotprod(SB), NOSPLIT, $0-8
	CHANNEL(CONSTS4, ZERO4, TWO8X8, BLOCK4_8X8, FINISH8X8)
