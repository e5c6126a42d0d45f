//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "frame_arm64.h"
#include "lowbit_arm64.h"
#include "channel_arm64.h"

// Products of one row of activations with packed weights, for CPUs without dot products (Cortex-A53 and A72).
// lowbit_dotprod_arm64.s describes the lanes of tile 8x16x2 and their activations.

// 4 bits: a block has 32 products of at most 2^10 for each row. Each of 8 int16 adds up 4 products. Adding pairs twice
// leaves 2 int16 a row, with 16 products each. V30 and V31 are the int32 of rows 0-3 and 4-7.

#define START4()     \
	VMOVI_2D(30) \
	VMOVI_2D(31)

// ODD4 multiplies the odd lanes of planes p and q, which hold the same two rows in the two units. The products go to d
// and e. EVEN4 does so with the even lanes. RUN4 multiplies all lanes.
#define ODD4(p, q, d, e)     \
	VSSHR_16B(4, p, p)   \
	VSSHR_16B(4, q, q)   \
	VSMULL_8H(18, p, d)  \
	VSMULL2_8H(18, p, e) \
	VSMLAL_8H(19, q, d)  \
	VSMLAL2_8H(19, q, e)

#define LOW_NIBBLES(p, q)  \
	VSHL_16B(4, p, 8)  \
	VSHL_16B(4, q, 9)  \
	VSSHR_16B(4, 8, 8) \
	VSSHR_16B(4, 9, 9)

#define EVEN4(p, q, d, e)    \
	LOW_NIBBLES(p, q)    \
	VSMULL_8H(16, 8, d)  \
	VSMULL2_8H(16, 8, e) \
	VSMLAL_8H(17, 9, d)  \
	VSMLAL2_8H(17, 9, e)

#define RUN4(p, q, d, e)     \
	LOW_NIBBLES(p, q)    \
	ODD4(p, q, d, e)     \
	VSMLAL_8H(16, 8, d)  \
	VSMLAL2_8H(16, 8, e) \
	VSMLAL_8H(17, 9, d)  \
	VSMLAL2_8H(17, 9, e)

#define LOAD4()                                              \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]      \
	VLD1.P 64(R10), [V16.B16, V17.B16, V18.B16, V19.B16] \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]

// SUM4 adds up the products of a block.
#define SUM4()               \
	VADDP_8H(21, 20, 20) \
	VADDP_8H(23, 22, 22) \
	VADDP_8H(25, 24, 24) \
	VADDP_8H(27, 26, 26) \
	VADDP_8H(22, 20, 20) \
	VADDP_8H(26, 24, 24) \
	VSADALP_4S(20, 30)   \
	VSADALP_4S(24, 31)

#define BLOCK4()           \
	LOAD4()            \
	RUN4(0, 4, 20, 21) \
	RUN4(1, 5, 22, 23) \
	RUN4(2, 6, 24, 25) \
	RUN4(3, 7, 26, 27) \
	SUM4()

#define FIRST4()            \
	LOAD4()             \
	EVEN4(0, 4, 20, 21) \
	EVEN4(1, 5, 22, 23) \
	EVEN4(2, 6, 24, 25) \
	EVEN4(3, 7, 26, 27) \
	SUM4()

#define SECOND4()          \
	LOAD4()            \
	ODD4(0, 4, 20, 21) \
	ODD4(1, 5, 22, 23) \
	ODD4(2, 6, 24, 25) \
	ODD4(3, 7, 26, 27) \
	SUM4()

#define REDUCE4()            \
	VMOV V30.B16, V0.B16 \
	VMOV V31.B16, V1.B16

// func lowbit4Neon(a *LowbitArgs)
TEXT ·lowbit4Neon(SB), NOSPLIT, $0-8
	LOWBIT(NONE, START4, BLOCK4, REDUCE4, EPILOGUE, EPILOGUE)

// func lowbit4SplitNeon(a *LowbitArgs)
TEXT ·lowbit4SplitNeon(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(NONE, START4, BLOCK4, FIRST4, SECOND4, REDUCE4, EPILOGUE)

// func lowbit4ZerosNeon(a *LowbitArgs)
TEXT ·lowbit4ZerosNeon(SB), NOSPLIT, $0-8
	LOWBIT(NONE, START4, BLOCK4, REDUCE4, EPILOGUE_ZEROS, EPILOGUE1_ZEROS)

// func lowbit4ZerosSplitNeon(a *LowbitArgs)
TEXT ·lowbit4ZerosSplitNeon(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(NONE, START4, BLOCK4, FIRST4, SECOND4, REDUCE4, EPILOGUE_ZEROS)

#define REDUCE4_FRACTIONS()     \
	VSHL $4, V30.S4, V0.S4 \
	VSHL $4, V31.S4, V1.S4

#define EPILOGUE_FRACTIONS4() FRACTIONS(4, SUB_POINTS)
#define EPILOGUE1_FRACTIONS4() FRACTIONS(4, SUB_POINTS1)

// func lowbit4FractionsNeon(a *LowbitArgs)
TEXT ·lowbit4FractionsNeon(SB), NOSPLIT, $0-8
	LOWBIT(NONE, START4, BLOCK4, REDUCE4_FRACTIONS, EPILOGUE_FRACTIONS4, EPILOGUE1_FRACTIONS4)

// func lowbit4FractionsSplitNeon(a *LowbitArgs)
TEXT ·lowbit4FractionsSplitNeon(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(NONE, START4, BLOCK4, FIRST4, SECOND4, REDUCE4_FRACTIONS, EPILOGUE_FRACTIONS4)

// 8 bits: a product may be 2^14, and an int16 cannot hold two. So each product is added to an int32; a row has four.

// LANE8 multiplies a lane w with activations a and adds to the sums d and e of its rows. RUN8 multiplies the two lanes w
// and x of a pair with activations a and b.
#define LANE8(w, a, d, e)   \
	VSMULL_8H(a, w, 8)  \
	VSMULL2_8H(a, w, 9) \
	VSADALP_4S(8, d)    \
	VSADALP_4S(9, e)

#define RUN8(w, x, a, b, d, e) \
	VSMULL_8H(a, w, 8)     \
	VSMULL2_8H(a, w, 9)    \
	VSMULL_8H(b, x, 10)    \
	VSMULL2_8H(b, x, 11)   \
	VSADALP_4S(8, d)       \
	VSADALP_4S(9, e)       \
	VSADALP_4S(10, d)      \
	VSADALP_4S(11, e)

#define BLOCK8()                                             \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]      \
	VLD1.P 64(R10), [V16.B16, V17.B16, V18.B16, V19.B16] \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]      \
	RUN8(0, 1, 16, 18, 20, 21)                           \
	RUN8(2, 3, 16, 18, 22, 23)                           \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]      \
	RUN8(4, 5, 16, 18, 24, 25)                           \
	RUN8(6, 7, 16, 18, 26, 27)                           \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]      \
	RUN8(0, 1, 17, 19, 20, 21)                           \
	RUN8(2, 3, 17, 19, 22, 23)                           \
	RUN8(4, 5, 17, 19, 24, 25)                           \
	RUN8(6, 7, 17, 19, 26, 27)

#define FIRST8()                                             \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]      \
	VLD1.P 64(R10), [V16.B16, V17.B16, V18.B16, V19.B16] \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]      \
	LANE8(0, 16, 20, 21)                                 \
	LANE8(2, 16, 22, 23)                                 \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]      \
	LANE8(4, 16, 24, 25)                                 \
	LANE8(6, 16, 26, 27)                                 \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]      \
	LANE8(0, 17, 20, 21)                                 \
	LANE8(2, 17, 22, 23)                                 \
	LANE8(4, 17, 24, 25)                                 \
	LANE8(6, 17, 26, 27)

#define SECOND8()                                            \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]      \
	VLD1.P 64(R10), [V16.B16, V17.B16, V18.B16, V19.B16] \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]      \
	LANE8(1, 18, 20, 21)                                 \
	LANE8(3, 18, 22, 23)                                 \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]      \
	LANE8(5, 18, 24, 25)                                 \
	LANE8(7, 18, 26, 27)                                 \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]      \
	LANE8(1, 19, 20, 21)                                 \
	LANE8(3, 19, 22, 23)                                 \
	LANE8(5, 19, 24, 25)                                 \
	LANE8(7, 19, 26, 27)

// func lowbit8Neon(a *LowbitArgs)
TEXT ·lowbit8Neon(SB), NOSPLIT, $0-8
	LOWBIT(NONE, ZERO8, BLOCK8, ROWS, EPILOGUE, EPILOGUE)

// func lowbit8SplitNeon(a *LowbitArgs)
TEXT ·lowbit8SplitNeon(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(NONE, ZERO8, BLOCK8, FIRST8, SECOND8, ROWS, EPILOGUE)

// func lowbit8ZerosNeon(a *LowbitArgs)
TEXT ·lowbit8ZerosNeon(SB), NOSPLIT, $0-8
	LOWBIT(NONE, ZERO8, BLOCK8, ROWS, EPILOGUE_ZEROS, EPILOGUE1_ZEROS)

// func lowbit8ZerosSplitNeon(a *LowbitArgs)
TEXT ·lowbit8ZerosSplitNeon(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(NONE, ZERO8, BLOCK8, FIRST8, SECOND8, ROWS, EPILOGUE_ZEROS)

// qsi4cxp: 4 bits as above. Stored sums of rows are multiplied by 16, stored scales divided by 16.

#define TWO4()   \
	BLOCK4() \
	BLOCK4()

#define FINISH4()              \
	VSHL $4, V30.S4, V0.S4 \
	VSHL $4, V31.S4, V1.S4 \
	WRITE8()

// func qsi4cxpNeon(a *ChannelArgs)
TEXT ·qsi4cxpNeon(SB), NOSPLIT, $0-8
	CHANNEL(NONE, START4, TWO4, BLOCK4, FINISH4)

// qsi8cxp, tile 4x4x1: 16 bytes are 4 columns of 4 rows. An accumulator has two lanes for each of two rows: V20 and V22
// for rows 0 and 1, V21 and V23 for rows 2 and 3.

// COLUMNS8 multiplies registers w and x with activations a and b.
#define COLUMNS8(w, x, a, b) \
	VSMULL_8H(a, w, 24)  \
	VSMULL2_8H(a, w, 25) \
	VSMULL_8H(b, x, 26)  \
	VSMULL2_8H(b, x, 27) \
	VSADALP_4S(24, 20)   \
	VSADALP_4S(25, 21)   \
	VSADALP_4S(26, 22)   \
	VSADALP_4S(27, 23)

#define BLOCK8X4()                                      \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	VLD1R.P 4(R10), [V8.S4]                         \
	VLD1R.P 4(R10), [V9.S4]                         \
	VLD1R.P 4(R10), [V10.S4]                        \
	VLD1R.P 4(R10), [V11.S4]                        \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16] \
	VLD1R.P 4(R10), [V12.S4]                        \
	VLD1R.P 4(R10), [V13.S4]                        \
	VLD1R.P 4(R10), [V14.S4]                        \
	VLD1R.P 4(R10), [V15.S4]                        \
	COLUMNS8(0, 1, 8, 9)                            \
	COLUMNS8(2, 3, 10, 11)                          \
	COLUMNS8(4, 5, 12, 13)                          \
	COLUMNS8(6, 7, 14, 15)

#define TWO8X4()   \
	BLOCK8X4() \
	BLOCK8X4()

#define FINISH8X4()                 \
	VADD V22.S4, V20.S4, V20.S4 \
	VADD V23.S4, V21.S4, V21.S4 \
	VADDP_4S(21, 20, 0)         \
	WRITE4()

// func qsi8cxp4x4Neon(a *ChannelArgs)
TEXT ·qsi8cxp4x4Neon(SB), NOSPLIT, $0-8
	CHANNEL(NONE, ZERO4, TWO8X4, BLOCK8X4, FINISH8X4)

// qsi8cxp, tile 4x8x1: 16 bytes are 8 columns of 2 rows. V20-V23 are a row each.

// COLUMNS16 multiplies 8 columns of rows 0 and 1 (w), and of rows 2 and 3 (x), with activations a.
#define COLUMNS16(w, x, a)   \
	VSMULL_8H(a, w, 24)  \
	VSMULL2_8H(a, w, 25) \
	VSMULL_8H(a, x, 26)  \
	VSMULL2_8H(a, x, 27) \
	VSADALP_4S(24, 20)   \
	VSADALP_4S(25, 21)   \
	VSADALP_4S(26, 22)   \
	VSADALP_4S(27, 23)

#define BLOCK8X8()                                           \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]      \
	VLD1.P 64(R10), [V16.B16, V17.B16, V18.B16, V19.B16] \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]      \
	COLUMNS16(0, 1, 16)                                  \
	COLUMNS16(2, 3, 17)                                  \
	COLUMNS16(4, 5, 18)                                  \
	COLUMNS16(6, 7, 19)

#define TWO8X8()   \
	BLOCK8X8() \
	BLOCK8X8()

#define FINISH8X8()          \
	VADDP_4S(21, 20, 20) \
	VADDP_4S(23, 22, 21) \
	VADDP_4S(21, 20, 0)  \
	WRITE4()

// func qsi8cxp4x8Neon(a *ChannelArgs)
TEXT ·qsi8cxp4x8Neon(SB), NOSPLIT, $0-8
	CHANNEL(NONE, ZERO4, TWO8X8, BLOCK8X8, FINISH8X8)
