//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "frame_arm64.h"
#include "channel_arm64.h"
#include "dotprod_arm64.h"

// Products of one row of activations with weights that have a scale a row, by dot products.

// BLOCK4_HALF loads half of the codes one register at a time, see BLOCK4_LOADS.
#define BLOCK4_HALF()                                   \
	ACTIVATIONS()                                   \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	LOAD4(R3, 0, F4, F5, F6, F7)                    \
	ADD $64, R3                                     \
	NIBBLES(0, 1, 2, 3, 8, 9, 10, 11)               \
	NIBBLES(4, 5, 6, 7, 12, 13, 14, 15)             \
	DOTS(16, 8, 9, 10, 11)                          \
	DOTS(18, 0, 1, 2, 3)                            \
	DOTS(17, 12, 13, 14, 15)                        \
	DOTS(19, 4, 5, 6, 7)

#define TWO4()        \
	BLOCK4_HALF() \
	BLOCK4_HALF()

// Stored sums of rows are multiplied by 16 and stored scales divided by 16, so the kernel uses codes times 16 directly.
#define FINISH4() \
	PAIRS()   \
	WRITE8()

// func qsi4cxpDotprod(a *ChannelArgs)
TEXT ·qsi4cxpDotprod(SB), NOSPLIT, $0-8
	CHANNEL(CONSTS4, ZERO4, TWO4, BLOCK4, FINISH4)

// 8 bits, tile 4x4x1: 16 bytes are 4 columns of 4 rows, which meet 4 activations, an element of V16-V19. The four
// accumulators hold the same 4 rows each.
#define COLUMNS16(a, w, x, y, z) \
	VSDOT_4S_0(a, w, 20)     \
	VSDOT_4S_1(a, x, 21)     \
	VSDOT_4S_2(a, y, 22)     \
	VSDOT_4S_3(a, z, 23)

// CODES8 loads 128 bytes of codes at offset of R3, one register at a time: see BLOCK4_LOADS.
#define CODES8(offset)                    \
	LOAD4(R3, offset, F0, F1, F2, F3) \
	LOAD4(R3, offset+64, F4, F5, F6, F7)

#define TWO8X4()                                             \
	VLD1.P 64(R10), [V16.B16, V17.B16, V18.B16, V19.B16] \
	CODES8(0)                                            \
	ADD $128, R3                                         \
	COLUMNS16(16, 0, 1, 2, 3)                            \
	COLUMNS16(17, 4, 5, 6, 7)                            \
	VLD1.P 64(R3), [V8.B16, V9.B16, V10.B16, V11.B16]    \
	VLD1.P 64(R3), [V12.B16, V13.B16, V14.B16, V15.B16]  \
	COLUMNS16(18, 8, 9, 10, 11)                          \
	COLUMNS16(19, 12, 13, 14, 15)

#define BLOCK8X4()                         \
	VLD1.P 32(R10), [V16.B16, V17.B16] \
	CODES8(0)                          \
	ADD $128, R3                       \
	COLUMNS16(16, 0, 1, 2, 3)          \
	COLUMNS16(17, 4, 5, 6, 7)

#define FINISH8X4()                 \
	VADD V21.S4, V20.S4, V20.S4 \
	VADD V23.S4, V22.S4, V22.S4 \
	VADD V22.S4, V20.S4, V0.S4  \
	WRITE4()

// func qsi8cxp4x4Dotprod(a *ChannelArgs)
TEXT ·qsi8cxp4x4Dotprod(SB), NOSPLIT, $0-8
	CHANNEL(NONE, ZERO4, TWO8X4, BLOCK8X4, FINISH8X4)

// 8 bits, tile 4x8x1: 16 bytes are 8 columns of 2 rows, which meet 8 activations twice. V20 and V22 are rows 0 and 1,
// V21 and V23 rows 2 and 3.
#define AT8X8(offset)       \
	ACTIVATIONS()       \
	CODES8(offset)      \
	VSDOT_4S(16, 0, 20) \
	VSDOT_4S(16, 1, 21) \
	VSDOT_4S(17, 2, 22) \
	VSDOT_4S(17, 3, 23) \
	VSDOT_4S(18, 4, 20) \
	VSDOT_4S(18, 5, 21) \
	VSDOT_4S(19, 6, 22) \
	VSDOT_4S(19, 7, 23)

#define BLOCK8X8() \
	AT8X8(0)   \
	ADD $128, R3

#define TWO8X8()   \
	AT8X8(0)   \
	AT8X8(128) \
	ADD $256, R3

#define FINISH8X8()                 \
	VADD V22.S4, V20.S4, V20.S4 \
	VADD V23.S4, V21.S4, V21.S4 \
	VADDP_4S(21, 20, 0)         \
	WRITE4()

// func qsi8cxp4x8Dotprod(a *ChannelArgs)
TEXT ·qsi8cxp4x8Dotprod(SB), NOSPLIT, $0-8
	CHANNEL(NONE, ZERO4, TWO8X8, BLOCK8X8, FINISH8X8)

// qsu2cxp, tile 4x4x1: 16 bytes are 16 columns of 4 rows, columns 4i to 4i+3 in bits 2i, which meet element i of a
// register of activations. Codes are unsigned, q + 2. V20 and V23 hold codes, V21 codes times 4, V22 codes times 16.
#define CONSTS2()            \
	VMOVI $0x30, V30.B16 \
	VMOVI $0x0c, V14.B16 \
	VMOVI $0x03, V15.B16

#define START2()                    \
	MOVD Args_Sums(R0), R14     \
	VLD1R (R14), [V20.S4]       \
	VMOVI_2D(21)                \
	VMOVI_2D(22)                \
	VMOVI_2D(23)

#define COLUMNS2(a, p)        \
	VAND_16B(15, p, 4)    \
	VAND_16B(14, p, 5)    \
	VAND_16B(30, p, 6)    \
	VUSHR_16B(6, p, 7)    \
	VSDOT_4S_0(a, 4, 20)  \
	VSDOT_4S_1(a, 5, 21)  \
	VSDOT_4S_2(a, 6, 22)  \
	VSDOT_4S_3(a, 7, 23)

#define TWO2()                                               \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]      \
	VLD1.P 64(R10), [V16.B16, V17.B16, V18.B16, V19.B16] \
	COLUMNS2(16, 0)                                      \
	COLUMNS2(17, 1)                                      \
	COLUMNS2(18, 2)                                      \
	COLUMNS2(19, 3)

#define BLOCK2()                           \
	VLD1.P 32(R3), [V0.B16, V1.B16]    \
	VLD1.P 32(R10), [V16.B16, V17.B16] \
	COLUMNS2(16, 0)                    \
	COLUMNS2(17, 1)

#define FINISH2()                  \
	VADD V23.S4, V20.S4, V0.S4 \
	VSSRA_4S(2, 21, 0)         \
	VSSRA_4S(4, 22, 0)         \
	WRITE4()

// func qsu2cxpDotprod(a *ChannelArgs)
TEXT ·qsu2cxpDotprod(SB), NOSPLIT, $0-8
	CHANNEL(CONSTS2, START2, TWO2, BLOCK2, FINISH2)
