//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "frame_arm64.h"
#include "lowbit_arm64.h"
#include "dotprod_arm64.h"
#include "planes_arm64.h"

// Products of one row of activations with lowbit weights of tile 8x16x2, by dot products.
//
// A block is two units of bit planes: unit s holds columns 8s to 8s+7 and 16+8s to 23+8s of 8 rows. Lane 2p+h of a unit
// is the 16 codes of rows 2p and 2p+1 in columns 16h+8s and on. So each lane meets a register of 8 activations twice:
// V16 for (s, h) = (0, 0), V17 for (1, 0), V18 for (0, 1), V19 for (1, 1). Accumulator V20+p takes the lanes of rows 2p
// and 2p+1, two int32 for each row.
//
// Lanes are unpacked to the form that costs least: unsigned codes, or codes times a power of two. If the factors of the
// two lanes of a pair differ, each lane has its own accumulator, V20+p and V24+p, and REDUCE adds the two.

// START_SUM8 does so with 8 accumulators.
#define START_SUM8() \
	START_SUM()  \
	VMOVI_2D(24) \
	VMOVI_2D(25) \
	VMOVI_2D(26) \
	VMOVI_2D(27)

// 1 bit: the dot products are negated. The sum of the activations, for q = u - 1, goes into one of the accumulators of
// each row.
#define CONSTS1_HALF()              \
	CONSTS1()                   \
	VADD V31.H8, V31.H8, V31.H8 \
	VUSHR $16, V31.S4, V31.S4

#define START1()              \
	FMOVS.P 4(R11), F20   \
	VDUP V20.D[0], V20.D2 \
	VMOV V20.B16, V21.B16 \
	VMOV V20.B16, V22.B16 \
	VMOV V20.B16, V23.B16

#define LOAD1()                         \
	VLD1.P 32(R3), [V0.B16, V1.B16] \
	ACTIVATIONS()

#define BLOCK1()     \
	LOAD1()      \
	EVEN1(0, DOTS, 16) \
	ODD1(0, DOTS, 18)  \
	EVEN1(1, DOTS, 17) \
	ODD1(1, DOTS, 19)

#define FIRST1()     \
	LOAD1()      \
	EVEN1(0, DOTS, 16) \
	EVEN1(1, DOTS, 17)

#define SECOND1()   \
	LOAD1()     \
	ODD1(0, DOTS, 18) \
	ODD1(1, DOTS, 19)

// func lowbit1Dotprod(a *LowbitArgs)
TEXT ·lowbit1Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS1, START1, BLOCK1, PAIRS, EPILOGUE_NEGATED, EPILOGUE_NEGATED)

// func lowbit1SplitDotprod(a *LowbitArgs)
TEXT ·lowbit1SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS1, START1, BLOCK1, FIRST1, SECOND1, PAIRS, EPILOGUE_NEGATED)

// func lowbit1ZerosDotprod(a *LowbitArgs)
TEXT ·lowbit1ZerosDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS1, ZERO4, BLOCK1, PAIRS, EPILOGUE_ZEROS_NEGATED, EPILOGUE1_ZEROS_NEGATED)

// func lowbit1ZerosSplitDotprod(a *LowbitArgs)
TEXT ·lowbit1ZerosSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS1, ZERO4, BLOCK1, FIRST1, SECOND1, PAIRS, EPILOGUE_ZEROS_NEGATED)

#define CONSTS1_FRACTIONS() \
	CONSTS1() \
	FRACTIONS128()

#define EPILOGUE_FRACTIONS1() FRACTIONS_OFFSET(7, ADD_POINTS, SUB_SCALED)
#define EPILOGUE1_FRACTIONS1() FRACTIONS_OFFSET(7, ADD_POINTS1, SUB_SCALED)

// func lowbit1FractionsDotprod(a *LowbitArgs)
TEXT ·lowbit1FractionsDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS1_FRACTIONS, ZERO4, BLOCK1, PAIRS, EPILOGUE_FRACTIONS1, EPILOGUE1_FRACTIONS1)

// func lowbit1FractionsSplitDotprod(a *LowbitArgs)
TEXT ·lowbit1FractionsSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS1_FRACTIONS, ZERO4, BLOCK1, FIRST1, SECOND1, PAIRS, EPILOGUE_FRACTIONS1)

// func lowbit1HalfDotprod(a *LowbitArgs)
TEXT ·lowbit1HalfDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS1_HALF, ZERO4, BLOCK1, PAIRS, EPILOGUE_HALF_NEGATED, EPILOGUE_HALF_NEGATED)

// func lowbit1HalfSplitDotprod(a *LowbitArgs)
TEXT ·lowbit1HalfSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS1_HALF, ZERO4, BLOCK1, FIRST1, SECOND1, PAIRS, EPILOGUE_HALF_NEGATED)

// 2 bits: a plane holds 4 lanes. The lanes of the first pair are codes and codes times 16, the lanes of the second pair
// codes times 4 and codes.
#define CONSTS2()            \
	VMOVI $0x30, V30.B16 \
	VMOVI $0x0c, V14.B16 \
	VMOVI $0x03, V15.B16 \
	VMOVI $2, V31.B16    \
	VUSHR $8, V31.H8, V31.H8

#define CONSTS2_HALF() \
	CONSTS2()      \
	VUSHR $16, V31.S4, V31.S4

#define EVEN2(p, q, a)     \
	VUSHR_16B(6, p, 4) \
	VAND_16B(14, p, 5) \
	VUSHR_16B(6, q, 6) \
	VAND_16B(14, q, 7) \
	VSDOT_4S(a, 4, 20) \
	VSDOT_4S(a, 5, 25) \
	VSDOT_4S(a, 6, 22) \
	VSDOT_4S(a, 7, 27)

#define ODD2(p, q, a)       \
	VAND_16B(30, p, 8)  \
	VAND_16B(15, p, 9)  \
	VAND_16B(30, q, 10) \
	VAND_16B(15, q, 11) \
	VSDOT_4S(a, 8, 24)  \
	VSDOT_4S(a, 9, 21)  \
	VSDOT_4S(a, 10, 26) \
	VSDOT_4S(a, 11, 23)

#define LOAD2()                                         \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	ACTIVATIONS()

#define BLOCK2()        \
	LOAD2()         \
	EVEN2(0, 1, 16) \
	ODD2(0, 1, 18)  \
	EVEN2(2, 3, 17) \
	ODD2(2, 3, 19)

#define FIRST2()        \
	LOAD2()         \
	EVEN2(0, 1, 16) \
	EVEN2(2, 3, 17)

#define SECOND2()      \
	LOAD2()        \
	ODD2(0, 1, 18) \
	ODD2(2, 3, 19)

#define REDUCE2()           \
	VSSRA_4S(4, 24, 20) \
	VSSRA_4S(2, 25, 21) \
	VSSRA_4S(4, 26, 22) \
	VSSRA_4S(2, 27, 23) \
	PAIRS()

// func lowbit2Dotprod(a *LowbitArgs)
TEXT ·lowbit2Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS2, START_SUM8, BLOCK2, REDUCE2, EPILOGUE, EPILOGUE)

// func lowbit2SplitDotprod(a *LowbitArgs)
TEXT ·lowbit2SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS2, START_SUM8, BLOCK2, FIRST2, SECOND2, REDUCE2, EPILOGUE)

// func lowbit2ZerosDotprod(a *LowbitArgs)
TEXT ·lowbit2ZerosDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS2, ZERO8, BLOCK2, REDUCE2, EPILOGUE_ZEROS_OFFSET, EPILOGUE1_ZEROS_OFFSET)

// func lowbit2ZerosSplitDotprod(a *LowbitArgs)
TEXT ·lowbit2ZerosSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS2, ZERO8, BLOCK2, FIRST2, SECOND2, REDUCE2, EPILOGUE_ZEROS_OFFSET)

#define CONSTS2_FRACTIONS() \
	CONSTS2() \
	FRACTIONS128()

#define EPILOGUE_FRACTIONS2() FRACTIONS_OFFSET(6, SUB_POINTS, ADD_SCALED)
#define EPILOGUE1_FRACTIONS2() FRACTIONS_OFFSET(6, SUB_POINTS1, ADD_SCALED)

// func lowbit2FractionsDotprod(a *LowbitArgs)
TEXT ·lowbit2FractionsDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS2_FRACTIONS, ZERO8, BLOCK2, REDUCE2, EPILOGUE_FRACTIONS2, EPILOGUE1_FRACTIONS2)

// func lowbit2FractionsSplitDotprod(a *LowbitArgs)
TEXT ·lowbit2FractionsSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS2_FRACTIONS, ZERO8, BLOCK2, FIRST2, SECOND2, REDUCE2, EPILOGUE_FRACTIONS2)

// func lowbit2HalfDotprod(a *LowbitArgs)
TEXT ·lowbit2HalfDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS2_HALF, ZERO8, BLOCK2, REDUCE2, EPILOGUE_HALF, EPILOGUE_HALF)

// func lowbit2HalfSplitDotprod(a *LowbitArgs)
TEXT ·lowbit2HalfSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS2_HALF, ZERO8, BLOCK2, FIRST2, SECOND2, REDUCE2, EPILOGUE_HALF)

// 3 bits: planes p, q, r. Bits 3-5 of a plane are the first lane of a pair, bits 0-2 the second; lanes 6 and 7 have
// their low bits at the top of p and q, their high bits at the top of r.
#define CONSTS3()            \
	VMOVI $0x38, V30.B16 \
	VMOVI $0x07, V15.B16 \
	VMOVI $4, V31.B16    \
	VUSHR $8, V31.H8, V31.H8

// ODD3 comes first: EVEN3 overwrites r.
#define ODD3(p, q, r, a)     \
	VSHL_16B(1, r, 12)   \
	VAND_16B(15, p, 9)   \
	VAND_16B(15, q, 10)  \
	VAND_16B(15, r, 11)  \
	VSRI_16B(1, q, 12)   \
	VUSHR_16B(5, 12, 12) \
	DOTS(a, 9, 10, 11, 12)

#define EVEN3(p, q, r, a)  \
	VAND_16B(30, p, 6) \
	VAND_16B(30, q, 7) \
	VAND_16B(30, r, 8) \
	VSRI_16B(1, p, r)  \
	VUSHR_16B(5, r, r) \
	VSDOT_4S(a, 6, 24) \
	VSDOT_4S(a, 7, 25) \
	VSDOT_4S(a, 8, 26) \
	VSDOT_4S(a, r, 23)

#define LOAD3()                                 \
	VLD1.P 48(R3), [V0.B16, V1.B16, V2.B16] \
	ACTIVATIONS()                           \
	VLD1.P 48(R3), [V3.B16, V4.B16, V5.B16]

#define BLOCK3()           \
	LOAD3()            \
	ODD3(0, 1, 2, 18)  \
	EVEN3(0, 1, 2, 16) \
	ODD3(3, 4, 5, 19)  \
	EVEN3(3, 4, 5, 17)

#define FIRST3()           \
	LOAD3()            \
	EVEN3(0, 1, 2, 16) \
	EVEN3(3, 4, 5, 17)

#define SECOND3()         \
	LOAD3()           \
	ODD3(0, 1, 2, 18) \
	ODD3(3, 4, 5, 19)

#define START3()     \
	START_SUM()  \
	VMOVI_2D(24) \
	VMOVI_2D(25) \
	VMOVI_2D(26)

#define START3_ZEROS() \
	ZERO4()        \
	VMOVI_2D(24)   \
	VMOVI_2D(25)   \
	VMOVI_2D(26)

#define REDUCE3()           \
	VSSRA_4S(3, 24, 20) \
	VSSRA_4S(3, 25, 21) \
	VSSRA_4S(3, 26, 22) \
	PAIRS()

// func lowbit3Dotprod(a *LowbitArgs)
TEXT ·lowbit3Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS3, START3, BLOCK3, REDUCE3, EPILOGUE, EPILOGUE)

// func lowbit3SplitDotprod(a *LowbitArgs)
TEXT ·lowbit3SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS3, START3, BLOCK3, FIRST3, SECOND3, REDUCE3, EPILOGUE)

// func lowbit3ZerosDotprod(a *LowbitArgs)
TEXT ·lowbit3ZerosDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS3, START3_ZEROS, BLOCK3, REDUCE3, EPILOGUE_ZEROS_OFFSET, EPILOGUE1_ZEROS_OFFSET)

// func lowbit3ZerosSplitDotprod(a *LowbitArgs)
TEXT ·lowbit3ZerosSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS3, START3_ZEROS, BLOCK3, FIRST3, SECOND3, REDUCE3, EPILOGUE_ZEROS_OFFSET)

#define CONSTS3_FRACTIONS() \
	CONSTS3() \
	FRACTIONS128()

#define EPILOGUE_FRACTIONS3() FRACTIONS_OFFSET(5, SUB_POINTS, ADD_SCALED)
#define EPILOGUE1_FRACTIONS3() FRACTIONS_OFFSET(5, SUB_POINTS1, ADD_SCALED)

// func lowbit3FractionsDotprod(a *LowbitArgs)
TEXT ·lowbit3FractionsDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS3_FRACTIONS, START3_ZEROS, BLOCK3, REDUCE3, EPILOGUE_FRACTIONS3, EPILOGUE1_FRACTIONS3)

// func lowbit3FractionsSplitDotprod(a *LowbitArgs)
TEXT ·lowbit3FractionsSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS3_FRACTIONS, START3_ZEROS, BLOCK3, FIRST3, SECOND3, REDUCE3, EPILOGUE_FRACTIONS3)

// func lowbit4Dotprod(a *LowbitArgs)
TEXT ·lowbit4Dotprod(SB), NOSPLIT, $0-8
	GROUPS1(CONSTS4, ZERO4, BLOCK4, BLOCK4_LOADS, PAIRS, EPILOGUE16, EPILOGUE16, TAIL8)

// func lowbit4SplitDotprod(a *LowbitArgs)
TEXT ·lowbit4SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS4, ZERO4, BLOCK4, FIRST4, SECOND4, PAIRS, EPILOGUE16)

// func lowbit4ZerosDotprod(a *LowbitArgs)
TEXT ·lowbit4ZerosDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS4, ZERO4, BLOCK4, PAIRS, EPILOGUE_ZEROS16, EPILOGUE1_ZEROS16)

// func lowbit4ZerosSplitDotprod(a *LowbitArgs)
TEXT ·lowbit4ZerosSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS4, ZERO4, BLOCK4, FIRST4, SECOND4, PAIRS, EPILOGUE_ZEROS16)

#define EPILOGUE_FRACTIONS4() FRACTIONS(4, SUB_POINTS)
#define EPILOGUE1_FRACTIONS4() FRACTIONS(4, SUB_POINTS1)

// func lowbit4FractionsDotprod(a *LowbitArgs)
TEXT ·lowbit4FractionsDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS4, ZERO4, BLOCK4, PAIRS, EPILOGUE_FRACTIONS4, EPILOGUE1_FRACTIONS4)

// func lowbit4FractionsSplitDotprod(a *LowbitArgs)
TEXT ·lowbit4FractionsSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS4, ZERO4, BLOCK4, FIRST4, SECOND4, PAIRS, EPILOGUE_FRACTIONS4)

// 5 bits.
#define LOAD5()                                         \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	ACTIVATIONS()                                   \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16] \
	VLD1.P 32(R3), [V8.B16, V9.B16]

#define BLOCK5()                \
	LOAD5()                 \
	ODD5(0, 1, 2, 3, 4, DOTS, 18) \
	EVEN5(0, 1, 2, 3, DOTS, 16)   \
	ODD5(5, 6, 7, 8, 9, DOTS, 19) \
	EVEN5(5, 6, 7, 8, DOTS, 17)

#define FIRST5()              \
	LOAD5()               \
	EVEN5(0, 1, 2, 3, DOTS, 16) \
	EVEN5(5, 6, 7, 8, DOTS, 17)

#define SECOND5()               \
	LOAD5()                 \
	ODD5(0, 1, 2, 3, 4, DOTS, 18) \
	ODD5(5, 6, 7, 8, 9, DOTS, 19)

// func lowbit5Dotprod(a *LowbitArgs)
TEXT ·lowbit5Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS5, START_SUM, BLOCK5, PAIRS, EPILOGUE, EPILOGUE)

// func lowbit5SplitDotprod(a *LowbitArgs)
TEXT ·lowbit5SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS5, START_SUM, BLOCK5, FIRST5, SECOND5, PAIRS, EPILOGUE)

// func lowbit5ZerosDotprod(a *LowbitArgs)
TEXT ·lowbit5ZerosDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS5, ZERO4, BLOCK5, PAIRS, EPILOGUE_ZEROS_OFFSET, EPILOGUE1_ZEROS_OFFSET)

// func lowbit5ZerosSplitDotprod(a *LowbitArgs)
TEXT ·lowbit5ZerosSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS5, ZERO4, BLOCK5, FIRST5, SECOND5, PAIRS, EPILOGUE_ZEROS_OFFSET)

#define CONSTS5_FRACTIONS() \
	CONSTS5() \
	FRACTIONS128()

#define EPILOGUE_FRACTIONS5() FRACTIONS_OFFSET(3, SUB_POINTS, ADD_SCALED)
#define EPILOGUE1_FRACTIONS5() FRACTIONS_OFFSET(3, SUB_POINTS1, ADD_SCALED)

// func lowbit5FractionsDotprod(a *LowbitArgs)
TEXT ·lowbit5FractionsDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS5_FRACTIONS, ZERO4, BLOCK5, PAIRS, EPILOGUE_FRACTIONS5, EPILOGUE1_FRACTIONS5)

// func lowbit5FractionsSplitDotprod(a *LowbitArgs)
TEXT ·lowbit5FractionsSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS5_FRACTIONS, ZERO4, BLOCK5, FIRST5, SECOND5, PAIRS, EPILOGUE_FRACTIONS5)

// 6 bits.
#define LOAD6()                                         \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	ACTIVATIONS()                                   \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16] \
	VLD1.P 64(R3), [V8.B16, V9.B16, V10.B16, V11.B16]

#define BLOCK6()                   \
	LOAD6()                    \
	EVEN6(0, 2, 3, 5, DOTS, 16)      \
	ODD6(0, 1, 2, 3, 4, 5, DOTS, 18) \
	EVEN6(6, 8, 9, 11, DOTS, 17)     \
	ODD6(6, 7, 8, 9, 10, 11, DOTS, 19)

#define FIRST6()              \
	LOAD6()               \
	EVEN6(0, 2, 3, 5, DOTS, 16) \
	EVEN6(6, 8, 9, 11, DOTS, 17)

#define SECOND6()                  \
	LOAD6()                    \
	ODD6(0, 1, 2, 3, 4, 5, DOTS, 18) \
	ODD6(6, 7, 8, 9, 10, 11, DOTS, 19)

// func lowbit6Dotprod(a *LowbitArgs)
TEXT ·lowbit6Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS6, START_SUM, BLOCK6, PAIRS, EPILOGUE, EPILOGUE)

// func lowbit6SplitDotprod(a *LowbitArgs)
TEXT ·lowbit6SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS6, START_SUM, BLOCK6, FIRST6, SECOND6, PAIRS, EPILOGUE)

// func lowbit6ZerosDotprod(a *LowbitArgs)
TEXT ·lowbit6ZerosDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS6, ZERO4, BLOCK6, PAIRS, EPILOGUE_ZEROS_OFFSET, EPILOGUE1_ZEROS_OFFSET)

// func lowbit6ZerosSplitDotprod(a *LowbitArgs)
TEXT ·lowbit6ZerosSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS6, ZERO4, BLOCK6, FIRST6, SECOND6, PAIRS, EPILOGUE_ZEROS_OFFSET)

#define CONSTS6_FRACTIONS() \
	CONSTS6() \
	FRACTIONS128()

#define EPILOGUE_FRACTIONS6() FRACTIONS_OFFSET(2, SUB_POINTS, ADD_SCALED)
#define EPILOGUE1_FRACTIONS6() FRACTIONS_OFFSET(2, SUB_POINTS1, ADD_SCALED)

// func lowbit6FractionsDotprod(a *LowbitArgs)
TEXT ·lowbit6FractionsDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS6_FRACTIONS, ZERO4, BLOCK6, PAIRS, EPILOGUE_FRACTIONS6, EPILOGUE1_FRACTIONS6)

// func lowbit6FractionsSplitDotprod(a *LowbitArgs)
TEXT ·lowbit6FractionsSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS6_FRACTIONS, ZERO4, BLOCK6, FIRST6, SECOND6, PAIRS, EPILOGUE_FRACTIONS6)

// 7 bits.
#define LOAD7()                                           \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]   \
	ACTIVATIONS()                                     \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]   \
	VLD1.P 64(R3), [V8.B16, V9.B16, V10.B16, V11.B16] \
	VLD1.P 32(R3), [V12.B16, V13.B16]

#define BLOCK7()                      \
	LOAD7()                       \
	EVEN7(0, 2, 4, 6, DOTS, 16)         \
	ODD7(0, 1, 2, 3, 4, 5, 6, DOTS, 18) \
	EVEN7(7, 9, 11, 13, DOTS, 17)       \
	ODD7(7, 8, 9, 10, 11, 12, 13, DOTS, 19)

#define FIRST7()              \
	LOAD7()               \
	EVEN7(0, 2, 4, 6, DOTS, 16) \
	EVEN7(7, 9, 11, 13, DOTS, 17)

#define SECOND7()                     \
	LOAD7()                       \
	ODD7(0, 1, 2, 3, 4, 5, 6, DOTS, 18) \
	ODD7(7, 8, 9, 10, 11, 12, 13, DOTS, 19)

// func lowbit7Dotprod(a *LowbitArgs)
TEXT ·lowbit7Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS7, START_SUM, BLOCK7, PAIRS, EPILOGUE, EPILOGUE)

// func lowbit7SplitDotprod(a *LowbitArgs)
TEXT ·lowbit7SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS7, START_SUM, BLOCK7, FIRST7, SECOND7, PAIRS, EPILOGUE)

// func lowbit7ZerosDotprod(a *LowbitArgs)
TEXT ·lowbit7ZerosDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS7, ZERO4, BLOCK7, PAIRS, EPILOGUE_ZEROS_OFFSET, EPILOGUE1_ZEROS_OFFSET)

// func lowbit7ZerosSplitDotprod(a *LowbitArgs)
TEXT ·lowbit7ZerosSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS7, ZERO4, BLOCK7, FIRST7, SECOND7, PAIRS, EPILOGUE_ZEROS_OFFSET)

#define CONSTS7_FRACTIONS() \
	CONSTS7() \
	FRACTIONS128()

#define EPILOGUE_FRACTIONS7() FRACTIONS_OFFSET(1, SUB_POINTS, ADD_SCALED)
#define EPILOGUE1_FRACTIONS7() FRACTIONS_OFFSET(1, SUB_POINTS1, ADD_SCALED)

// func lowbit7FractionsDotprod(a *LowbitArgs)
TEXT ·lowbit7FractionsDotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS7_FRACTIONS, ZERO4, BLOCK7, PAIRS, EPILOGUE_FRACTIONS7, EPILOGUE1_FRACTIONS7)

// func lowbit7FractionsSplitDotprod(a *LowbitArgs)
TEXT ·lowbit7FractionsSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS7_FRACTIONS, ZERO4, BLOCK7, FIRST7, SECOND7, PAIRS, EPILOGUE_FRACTIONS7)

// 8 bits: lanes are stored unchanged.
#define LOAD8()                                           \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16]   \
	ACTIVATIONS()                                     \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]   \
	VLD1.P 64(R3), [V8.B16, V9.B16, V10.B16, V11.B16] \
	VLD1.P 64(R3), [V12.B16, V13.B16, V14.B16, V15.B16]

#define BLOCK8()                \
	LOAD8()                 \
	DOTS(16, 0, 2, 4, 6)    \
	DOTS(18, 1, 3, 5, 7)    \
	DOTS(17, 8, 10, 12, 14) \
	DOTS(19, 9, 11, 13, 15)

#define FIRST8()             \
	LOAD8()              \
	DOTS(16, 0, 2, 4, 6) \
	DOTS(17, 8, 10, 12, 14)

#define SECOND8()            \
	LOAD8()              \
	DOTS(18, 1, 3, 5, 7) \
	DOTS(19, 9, 11, 13, 15)

// func lowbit8Dotprod(a *LowbitArgs)
TEXT ·lowbit8Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(NONE, ZERO4, BLOCK8, PAIRS, EPILOGUE, EPILOGUE)

// func lowbit8SplitDotprod(a *LowbitArgs)
TEXT ·lowbit8SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(NONE, ZERO4, BLOCK8, FIRST8, SECOND8, PAIRS, EPILOGUE)

// func lowbit8ZerosDotprod(a *LowbitArgs)
TEXT ·lowbit8ZerosDotprod(SB), NOSPLIT, $0-8
	LOWBIT(NONE, ZERO4, BLOCK8, PAIRS, EPILOGUE_ZEROS, EPILOGUE1_ZEROS)

// func lowbit8ZerosSplitDotprod(a *LowbitArgs)
TEXT ·lowbit8ZerosSplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(NONE, ZERO4, BLOCK8, FIRST8, SECOND8, PAIRS, EPILOGUE_ZEROS)
