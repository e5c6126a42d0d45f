//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "blocks_arm64.h"

// Format.unpack by NEON, for all CPUs. R0 is UnpackArgs, R2 the block, R3 the place of codes, R4 Stride, R5 Step, R6 the
// blocks left, R7, R8, R9 and R13 the places of scales, minima, sub-scales and sub-minima. V25 is added to codes.

#define UNPACK(offset, CONSTS, BLOCK)       \
	MOVD a+0(FP), R0                    \
	MOVD UnpackArgs_Data(R0), R2        \
	MOVD UnpackArgs_Blocks(R0), R6      \
	MOVD UnpackArgs_Codes(R0), R3       \
	MOVD UnpackArgs_Stride(R0), R4      \
	MOVD UnpackArgs_Step(R0), R5        \
	MOVD UnpackArgs_Scales(R0), R7      \
	MOVD UnpackArgs_Mins(R0), R8        \
	MOVD UnpackArgs_Subs(R0), R9        \
	MOVD UnpackArgs_SubMins(R0), R13    \
	MOVBU UnpackArgs_Offset(R0), R14    \
	SUB $offset, R14                    \
	VDUP R14, V25.B16                   \
	CONSTS()                            \
block:                                      \
	BLOCK()                             \
	SUBS $1, R6                         \
	BNE block                           \
	RET

// PUT writes 16 codes.
#define PUT(r)                      \
	VADD V25.B16, r.B16, r.B16  \
	VST1.P r.D[0], (R3)(R4)     \
	VST1.P r.D[1], (R3)(R4)

#define PUT64()   \
	PUT(V20)  \
	PUT(V21)  \
	PUT(V22)  \
	PUT(V23)

#define NUMBERS4(r, p)           \
	VST1.P r.S[0], (p)(R5)   \
	VST1.P r.S[1], (p)(R5)   \
	VST1.P r.S[2], (p)(R5)   \
	VST1.P r.S[3], (p)(R5)

#define NUMBERS16(p)       \
	NUMBERS4(V7, p)    \
	NUMBERS4(V8, p)    \
	NUMBERS4(V9, p)    \
	NUMBERS4(V10, p)

// PUT_D writes the scale that V0 begins with, PUT_DM also the minimum.
#define PUT_D()                  \
	VFCVTL_4S(0, 1)          \
	VST1.P V1.S[0], (R7)(R5)

#define PUT_DM()                 \
	PUT_D()                  \
	VST1.P V1.S[1], (R8)(R5)

#define SIX_NUMBERS()         \
	SIXBITS()             \
	PUT_DM()              \
	NUMBERS4(V7, R9)      \
	NUMBERS4(V8, R9)      \
	NUMBERS4(V9, R13)     \
	NUMBERS4(V10, R13)

#define HALF_FOURS()   \
	CODES()        \
	FOURS(12, 13)  \
	PUT64()        \
	FOURS(14, 15)  \
	PUT64()

#define UNPACK_Q4K()   \
	SIX_NUMBERS()  \
	HALF_FOURS()   \
	HALF_FOURS()

#define HALF_FIVES()   \
	CODES()        \
	FIVES(12, 13)  \
	PUT64()        \
	FIVES(14, 15)  \
	PUT64()

#define UNPACK_Q5K()                       \
	SIX_NUMBERS()                      \
	VLD1.P 32(R2), [V10.B16, V11.B16]  \
	HALF_FIVES()                       \
	HALF_FIVES()

#define HALF_SIXES()  \
	LOW64()       \
	PUT(V12)      \
	PUT(V13)      \
	PUT(V14)      \
	PUT(V15)      \
	HIGH64()      \
	PUT64()

#define UNPACK_Q6K()              \
	ADD $128, R2, R10         \
	ADD $192, R2, R11         \
	VLD1.P 16(R11), [V1.B16]  \
	WIDEN()                   \
	NUMBERS16(R9)             \
	VLD1 (R11), V0.H[0]       \
	PUT_D()                   \
	HALF_SIXES()              \
	HALF_SIXES()              \
	ADD $82, R2

#define PUT32()   \
	PUT(V20)  \
	PUT(V21)

#define HALF_TWOS(p, q)        \
	VAND_16B(31, p, 20)    \
	VAND_16B(31, q, 21)    \
	PUT32()                \
	TWO32(2, p, q)         \
	PUT32()                \
	TWO32(4, p, q)         \
	PUT32()                \
	VUSHR_16B(6, p, 20)    \
	VUSHR_16B(6, q, 21)    \
	PUT32()

#define UNPACK_Q2K()                  \
	VLD1.P 16(R2), [V0.B16]       \
	VUSHR_16B(4, 0, 1)            \
	WIDEN()                       \
	NUMBERS16(R13)                \
	VAND_16B(30, 0, 1)            \
	WIDEN()                       \
	NUMBERS16(R9)                 \
	CODES()                       \
	HALF_TWOS(12, 13)             \
	HALF_TWOS(14, 15)             \
	VLD1.P 4(R2), V0.S[0]         \
	PUT_DM()

#define HALF_THREES(p, q)      \
	VMOV_16B(p, 20)        \
	VMOV_16B(q, 21)        \
	THIRD()                \
	PUT32()                \
	VUSHR_16B(2, p, 20)    \
	VUSHR_16B(2, q, 21)    \
	THIRD()                \
	PUT32()                \
	VUSHR_16B(4, p, 20)    \
	VUSHR_16B(4, q, 21)    \
	THIRD()                \
	PUT32()                \
	VUSHR_16B(6, p, 20)    \
	VUSHR_16B(6, q, 21)    \
	THIRD()                \
	PUT32()

#define UNPACK_Q3K()                  \
	MOVD R2, R10                  \
	ADD $32, R2                   \
	CODES()                       \
	SUBS_Q3K()                    \
	NUMBERS16(R9)                 \
	VLD1.P 2(R2), V0.H[0]         \
	PUT_D()                       \
	VLD1 (R10), [V0.B16, V1.B16]  \
	HALF_THREES(12, 13)           \
	HALF_THREES(14, 15)

#define HALF_IQ4()     \
	CODES()        \
	LOOKUP32(12)   \
	PUT32()        \
	LOOKUP32(13)   \
	PUT32()        \
	LOOKUP32(14)   \
	PUT32()        \
	LOOKUP32(15)   \
	PUT32()

#define UNPACK_IQ4XS()     \
	SUBS_IQ4XS()       \
	PUT_D()            \
	NUMBERS4(V7, R9)   \
	NUMBERS4(V8, R9)   \
	HALF_IQ4()         \
	HALF_IQ4()

#define PUT_NIBBLES()  \
	PUT(V3)        \
	PUT(V2)

#define UNPACK_Q40()      \
	LOAD_D(R2, 0)     \
	PUT_D()           \
	NIBBLES32(R2)     \
	PUT_NIBBLES()

#define UNPACK_Q41()      \
	LOAD_DM(R2, 0)    \
	PUT_DM()          \
	NIBBLES32(R2)     \
	PUT_NIBBLES()

#define UNPACK_Q50()      \
	LOAD_D(R2, 0)     \
	PUT_D()           \
	FIFTH(R2)         \
	PUT_NIBBLES()

#define UNPACK_Q51()      \
	LOAD_DM(R2, 0)    \
	PUT_DM()          \
	FIFTH(R2)         \
	PUT_NIBBLES()

#define UNPACK_Q80()                    \
	LOAD_D(R2, 0)                   \
	PUT_D()                         \
	VLD1.P 32(R2), [V2.B16, V3.B16] \
	PUT(V2)                         \
	PUT(V3)

#define UNPACK_IQ4NL()           \
	LOAD_D(R2, 0)            \
	PUT_D()                  \
	VLD1.P 16(R2), [V2.B16]  \
	LOOKUP32(2)              \
	PUT32()

#define UNPACK_MXFP4() \
	MOVBU.P 1(R2), R14 \
	VDUP R14, V0.S4 \
	POWERS() \
	VST1.P V1.S[0], (R7)(R5) \
	VLD1.P 16(R2), [V2.B16] \
	LOOKUP32(2) \
	PUT32()

#define PUT_FP4() \
	FP4_16(R2) \
	PUT(V2)

#define UNPACK_NVFP4() \
	VMOVI_2D(3) \
	VLD1.P 4(R2), V1.S[0] \
	VZIP1 V3.B16, V1.B16, V1.B16 \
	VZIP1 V3.H8, V1.H8, V1.H8 \
	E4M3() \
	NUMBERS4(V1, R7) \
	PUT_FP4() \
	PUT_FP4() \
	PUT_FP4() \
	PUT_FP4()

#define UNPACK_TQ2() \
	CODES() \
	HALF_TWOS(12, 13) \
	HALF_TWOS(14, 15) \
	VLD1.P 2(R2), V0.H[0] \
	PUT_D()

#define UNPACK_TQ1() \
	DIGITS(PUT32) \
	VLD1.P 2(R2), V0.H[0] \
	PUT_D()

// func unpackQ2KNEON(a *UnpackArgs)
TEXT ·unpackQ2KNEON(SB), NOSPLIT, $0-8
	UNPACK(0, CONSTS_Q2K, UNPACK_Q2K)

// func unpackQ3KNEON(a *UnpackArgs)
TEXT ·unpackQ3KNEON(SB), NOSPLIT, $0-8
	UNPACK(4, CONSTS_Q3K, UNPACK_Q3K)

// func unpackQ4KNEON(a *UnpackArgs)
TEXT ·unpackQ4KNEON(SB), NOSPLIT, $0-8
	UNPACK(0, CONSTS_Q4K, UNPACK_Q4K)

// func unpackQ5KNEON(a *UnpackArgs)
TEXT ·unpackQ5KNEON(SB), NOSPLIT, $0-8
	UNPACK(0, CONSTS_Q5K, UNPACK_Q5K)

// func unpackQ6KNEON(a *UnpackArgs)
TEXT ·unpackQ6KNEON(SB), NOSPLIT, $0-8
	UNPACK(32, CONSTS_Q6K, UNPACK_Q6K)

// func unpackIQ4XSNEON(a *UnpackArgs)
TEXT ·unpackIQ4XSNEON(SB), NOSPLIT, $0-8
	UNPACK(0, CONSTS_IQ4, UNPACK_IQ4XS)

// func unpackQ40NEON(a *UnpackArgs)
TEXT ·unpackQ40NEON(SB), NOSPLIT, $0-8
	UNPACK(8, LOW15, UNPACK_Q40)

// func unpackQ41NEON(a *UnpackArgs)
TEXT ·unpackQ41NEON(SB), NOSPLIT, $0-8
	UNPACK(0, LOW15, UNPACK_Q41)

// func unpackQ50NEON(a *UnpackArgs)
TEXT ·unpackQ50NEON(SB), NOSPLIT, $0-8
	UNPACK(16, CONSTS_FIVE, UNPACK_Q50)

// func unpackQ51NEON(a *UnpackArgs)
TEXT ·unpackQ51NEON(SB), NOSPLIT, $0-8
	UNPACK(0, CONSTS_FIVE, UNPACK_Q51)

// func unpackQ80NEON(a *UnpackArgs)
TEXT ·unpackQ80NEON(SB), NOSPLIT, $0-8
	UNPACK(0, NONE, UNPACK_Q80)

// func unpackIQ4NLNEON(a *UnpackArgs)
TEXT ·unpackIQ4NLNEON(SB), NOSPLIT, $0-8
	UNPACK(0, CONSTS_IQ4, UNPACK_IQ4NL)

// func unpackMXFP4NEON(a *UnpackArgs)
TEXT ·unpackMXFP4NEON(SB), NOSPLIT, $0-8
	UNPACK(0, CONSTS_MXFP4, UNPACK_MXFP4)

// func unpackNVFP4NEON(a *UnpackArgs)
TEXT ·unpackNVFP4NEON(SB), NOSPLIT, $0-8
	UNPACK(0, CONSTS_NVFP4, UNPACK_NVFP4)

// func unpackTQ10NEON(a *UnpackArgs)
TEXT ·unpackTQ10NEON(SB), NOSPLIT, $0-8
	UNPACK(1, CONSTS_TQ1, UNPACK_TQ1)

// func unpackTQ20NEON(a *UnpackArgs)
TEXT ·unpackTQ20NEON(SB), NOSPLIT, $0-8
	UNPACK(1, CONSTS_TQ2, UNPACK_TQ2)
