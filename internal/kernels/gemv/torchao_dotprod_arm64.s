//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "frame_arm64.h"
#include "lowbit_arm64.h"
#include "dotprod_arm64.h"
#include "planes_arm64.h"

// Products of one row of activations with torchao-linear weights, by dot products.
//
// A block is one unit of bit planes: lane 4h+p holds columns 8h to 8h+7 of rows 2p and 2p+1. Lanes 0 to 3 meet V16, lanes
// 4 to 7 meet V17; accumulator V20+p takes lanes p and 4+p, two int32 for each row. lowbit_dotprod_arm64.s describes how
// lanes are unpacked. The codes u are unsigned, q + offset (but for 8 bits). With sums of activations suma, and za their
// zero point, the product of a group is
//
//	t = dot(a, u) - offset suma - za sum(q)                                         without zero points
//	t = dot(a, u) - (z + offset) (suma - g za) - za sum(q) - za g offset            with zero points z, g columns
//
// V18 holds -za and the last term, or half of this term, because each row has two accumulators that start with it. V19
// is Rec, V31 (4S) the offset. Without zero points, Sums have the factor -offset, or half of it.
#define FACTORS_TORCHAO()              \
	FMOVS TorchAOArgs_NegZeroInt(R0), F18 \
	FMOVS TorchAOArgs_Rec(R0), F19

// FACTORS_ZEROS is for codes of a number of bits with zero points. The term is divided by 2^half.
#define FACTORS_ZEROS(bits, half)          \
	FACTORS_TORCHAO()                  \
	MOVW TorchAOArgs_NegZeroInt(R0), R14      \
	MUL R6, R14, R14                   \
	LSL $(4+bits-1-half), R14, R14     \
	VMOV R14, V18.S[1]                 \
	VMOVI $(1<<(bits-1)), V31.B16      \
	VUSHR $24, V31.S4, V31.S4

// EVEN_LANES multiplies lanes 0, 2, 4 and 6, ODD_LANES lanes 1, 3, 5 and 7.
#define EVEN_LANES(a, w, x, y, z) \
	VSDOT_4S(16, w, 20)       \
	VSDOT_4S(16, x, 22)       \
	VSDOT_4S(17, y, 20)       \
	VSDOT_4S(17, z, 22)

#define ODD_LANES(a, w, x, y, z) \
	VSDOT_4S(16, w, 21)      \
	VSDOT_4S(16, x, 23)      \
	VSDOT_4S(17, y, 21)      \
	VSDOT_4S(17, z, 23)

#define ACTIVATIONS16() \
	VLD1.P 32(R10), [V16.B16, V17.B16]

// START_TERM starts the accumulators with the term.
#define START_TERM()          \
	VDUP V18.S[1], V20.S4 \
	VDUP V18.S[1], V21.S4 \
	VDUP V18.S[1], V22.S4 \
	VDUP V18.S[1], V23.S4

// ADD_SUM and ADD_TERM complete integers whose accumulators start with 0. In SUB_SUM and SUB_TERM the integers are
// negated.
#define ADD_SUM()                  \
	VLD1R.P 4(R11), [V6.S4]    \
	VADD V6.S4, V0.S4, V0.S4   \
	VADD V6.S4, V1.S4, V1.S4

#define ADD_TERM()                 \
	VDUP V18.S[1], V6.S4       \
	VADD V6.S4, V0.S4, V0.S4   \
	VADD V6.S4, V1.S4, V1.S4

#define SUB_SUM()                  \
	VLD1R.P 4(R11), [V6.S4]    \
	VSUB V0.S4, V6.S4, V0.S4   \
	VSUB V1.S4, V6.S4, V1.S4

#define SUB_TERM()                 \
	VDUP V18.S[1], V6.S4       \
	VSUB V0.S4, V6.S4, V0.S4   \
	VSUB V1.S4, V6.S4, V1.S4

// The record of a group: 8 float32 scales, 8 int32 sums of codes, and 8 int32 zero points. Every operation of f +
// (scale Rec) t is rounded.
#define RECORD()                                      \
	VLD1.P 64(R3), [V2.S4, V3.S4, V4.S4, V5.S4]   \
	VMLA_4S_0(18, 4, 0)                           \
	VMLA_4S_0(18, 5, 1)

#define ADD_ROUNDED()       \
	VSCVTF_4S(0, 0)     \
	VSCVTF_4S(1, 1)     \
	VFMUL_4S_0(19, 2, 2) \
	VFMUL_4S_0(19, 3, 3) \
	VFMUL_4S(2, 0, 0)   \
	VFMUL_4S(3, 1, 1)   \
	VFADD_4S(0, 28, 28) \
	VFADD_4S(1, 29, 29)

#define EPILOGUE_TORCHAO() \
	RECORD()           \
	ADD_ROUNDED()

// A stored zero point counts by its low byte.
#define EPILOGUE_TORCHAO_ZEROS()              \
	RECORD()                              \
	VLD1.P 32(R3), [V4.S4, V5.S4]         \
	VLD1R.P 4(R11), [V6.S4]               \
	VSHL $24, V4.S4, V4.S4                \
	VSHL $24, V5.S4, V5.S4                \
	VSSHR_4S(24, 4, 4)                    \
	VSSHR_4S(24, 5, 5)                    \
	VADD V31.S4, V4.S4, V4.S4             \
	VADD V31.S4, V5.S4, V5.S4             \
	VMLS_4S(6, 4, 0)                      \
	VMLS_4S(6, 5, 1)                      \
	ADD_ROUNDED()

#define TAIL_TORCHAO()              \
	MOVD TorchAOArgs_Biased(R0), R14   \
	CBZ R14, unbiased           \
	VLD1 (R3), [V0.S4, V1.S4]   \
	VFADD_4S(0, 28, 28)         \
	VFADD_4S(1, 29, 29)         \
unbiased:                           \
	STORE8()

#define TORCHAO(CONSTS, START, BLOCK, REDUCE) \
	GROUPS(CONSTS, START, BLOCK, REDUCE, EPILOGUE_TORCHAO, EPILOGUE_TORCHAO, TAIL_TORCHAO)

#define TORCHAO_ZEROS(CONSTS, START, BLOCK, REDUCE) \
	GROUPS(CONSTS, START, BLOCK, REDUCE, EPILOGUE_TORCHAO_ZEROS, EPILOGUE_TORCHAO_ZEROS, TAIL_TORCHAO)

// 1 bit: the integers are negated.
#define UNIT1()                \
	VLD1.P 16(R3), [V0.B16] \
	ACTIVATIONS16()         \
	EVEN1(0, EVEN_LANES, 0)  \
	ODD1(0, ODD_LANES, 0)

#define HEAD1() \
	CONSTS1() \
	FACTORS_TORCHAO()

#define REDUCE1() \
	PAIRS() \
	SUB_SUM()

// func torchao1Dotprod(a *TorchAOArgs)
TEXT ·torchao1Dotprod(SB), NOSPLIT, $0-8
	TORCHAO(HEAD1, ZERO4, UNIT1, REDUCE1)

#define HEAD1_ZEROS() \
	CONSTS1() \
	FACTORS_ZEROS(1, 0)

#define REDUCE1_ZEROS() \
	PAIRS() \
	SUB_TERM()

// func torchao1ZerosDotprod(a *TorchAOArgs)
TEXT ·torchao1ZerosDotprod(SB), NOSPLIT, $0-8
	TORCHAO_ZEROS(HEAD1_ZEROS, ZERO4, UNIT1, REDUCE1_ZEROS)

// 2 bits: lanes p and 4+p have the same factor: 1, 16, 4 and 1 for p = 0 to 3.
#define CONSTS2_TORCHAO()    \
	VMOVI $0x30, V30.B16 \
	VMOVI $0x0c, V14.B16 \
	VMOVI $0x03, V15.B16

#define UNIT2()                         \
	VLD1.P 32(R3), [V0.B16, V1.B16] \
	ACTIVATIONS16()                 \
	VUSHR_16B(6, 0, 4)              \
	VAND_16B(30, 0, 5)              \
	VAND_16B(14, 0, 6)              \
	VAND_16B(15, 0, 7)              \
	VUSHR_16B(6, 1, 8)              \
	VAND_16B(30, 1, 9)              \
	VAND_16B(14, 1, 10)             \
	VAND_16B(15, 1, 11)             \
	EVEN_LANES(0, 4, 6, 8, 10)      \
	ODD_LANES(0, 5, 7, 9, 11)

#define SHIFT2()          \
	VSSHR_4S(4, 21, 21) \
	VSSHR_4S(2, 22, 22)

#define HEAD2() \
	CONSTS2_TORCHAO() \
	FACTORS_TORCHAO()

#define REDUCE2() \
	SHIFT2() \
	PAIRS() \
	ADD_SUM()

// func torchao2Dotprod(a *TorchAOArgs)
TEXT ·torchao2Dotprod(SB), NOSPLIT, $0-8
	TORCHAO(HEAD2, ZERO4, UNIT2, REDUCE2)

#define HEAD2_ZEROS() \
	CONSTS2_TORCHAO() \
	FACTORS_ZEROS(2, 0)

#define REDUCE2_ZEROS() \
	SHIFT2() \
	PAIRS() \
	ADD_TERM()

// func torchao2ZerosDotprod(a *TorchAOArgs)
TEXT ·torchao2ZerosDotprod(SB), NOSPLIT, $0-8
	TORCHAO_ZEROS(HEAD2_ZEROS, ZERO4, UNIT2, REDUCE2_ZEROS)

// 3 bits: lanes 0, 2 and 4 are codes times 8. V24 takes lane 2, whose rows have lane 6 too.
#define CONSTS3_TORCHAO()    \
	VMOVI $0x38, V30.B16 \
	VMOVI $0x07, V15.B16

#define START3_TORCHAO() \
	ZERO4()          \
	VMOVI_2D(24)

#define UNIT3()                                 \
	VLD1.P 48(R3), [V0.B16, V1.B16, V2.B16] \
	ACTIVATIONS16()                         \
	VAND_16B(30, 0, 6)                      \
	VAND_16B(15, 0, 7)                      \
	VAND_16B(30, 1, 8)                      \
	VAND_16B(15, 1, 9)                      \
	VAND_16B(30, 2, 10)                     \
	VAND_16B(15, 2, 11)                     \
	VSHL_16B(1, 2, 12)                      \
	VSRI_16B(1, 0, 2)                       \
	VSRI_16B(1, 1, 12)                      \
	VUSHR_16B(5, 2, 2)                      \
	VUSHR_16B(5, 12, 12)                    \
	VSDOT_4S(16, 6, 20)                     \
	VSDOT_4S(16, 7, 21)                     \
	VSDOT_4S(16, 8, 24)                     \
	VSDOT_4S(16, 9, 23)                     \
	VSDOT_4S(17, 10, 20)                    \
	VSDOT_4S(17, 11, 21)                    \
	VSDOT_4S(17, 2, 22)                     \
	VSDOT_4S(17, 12, 23)

#define SHIFT3()            \
	VSSHR_4S(3, 20, 20) \
	VSSRA_4S(3, 24, 22)

#define HEAD3() \
	CONSTS3_TORCHAO() \
	FACTORS_TORCHAO()

#define REDUCE3() \
	SHIFT3() \
	PAIRS() \
	ADD_SUM()

// func torchao3Dotprod(a *TorchAOArgs)
TEXT ·torchao3Dotprod(SB), NOSPLIT, $0-8
	TORCHAO(HEAD3, START3_TORCHAO, UNIT3, REDUCE3)

#define HEAD3_ZEROS() \
	CONSTS3_TORCHAO() \
	FACTORS_ZEROS(3, 0)

#define REDUCE3_ZEROS() \
	SHIFT3() \
	PAIRS() \
	ADD_TERM()

// func torchao3ZerosDotprod(a *TorchAOArgs)
TEXT ·torchao3ZerosDotprod(SB), NOSPLIT, $0-8
	TORCHAO_ZEROS(HEAD3_ZEROS, START3_TORCHAO, UNIT3, REDUCE3_ZEROS)

// 4 bits: a plane holds lanes 2m and 2m+1 in its nibbles.
#define CONSTS4_TORCHAO() \
	VMOVI $0x0f, V30.B16

#define UNIT4()                                         \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	ACTIVATIONS16()                                 \
	VAND_16B(30, 0, 4)                              \
	VAND_16B(30, 1, 5)                              \
	VAND_16B(30, 2, 6)                              \
	VAND_16B(30, 3, 7)                              \
	VUSHR_16B(4, 0, 0)                              \
	VUSHR_16B(4, 1, 1)                              \
	VUSHR_16B(4, 2, 2)                              \
	VUSHR_16B(4, 3, 3)                              \
	EVEN_LANES(0, 4, 5, 6, 7)                       \
	ODD_LANES(0, 0, 1, 2, 3)

#define HEAD4() \
	CONSTS4_TORCHAO() \
	FACTORS_TORCHAO()

// func torchao4Dotprod(a *TorchAOArgs)
TEXT ·torchao4Dotprod(SB), NOSPLIT, $0-8
	TORCHAO(HEAD4, START_SUM, UNIT4, PAIRS)

#define HEAD4_ZEROS() \
	CONSTS4_TORCHAO() \
	FACTORS_ZEROS(4, 1)

// func torchao4ZerosDotprod(a *TorchAOArgs)
TEXT ·torchao4ZerosDotprod(SB), NOSPLIT, $0-8
	TORCHAO_ZEROS(HEAD4_ZEROS, START_TERM, UNIT4, PAIRS)

// 5 bits.
#define UNIT5()                                         \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	VLD1.P 16(R3), [V4.B16]                         \
	ACTIVATIONS16()                                 \
	ODD5(0, 1, 2, 3, 4, ODD_LANES, 0)               \
	EVEN5(0, 1, 2, 3, EVEN_LANES, 0)

#define HEAD5() \
	CONSTS5() \
	FACTORS_TORCHAO()

// func torchao5Dotprod(a *TorchAOArgs)
TEXT ·torchao5Dotprod(SB), NOSPLIT, $0-8
	TORCHAO(HEAD5, START_SUM, UNIT5, PAIRS)

#define HEAD5_ZEROS() \
	CONSTS5() \
	FACTORS_ZEROS(5, 1)

// func torchao5ZerosDotprod(a *TorchAOArgs)
TEXT ·torchao5ZerosDotprod(SB), NOSPLIT, $0-8
	TORCHAO_ZEROS(HEAD5_ZEROS, START_TERM, UNIT5, PAIRS)

// 6 bits.
#define UNIT6()                                         \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	VLD1.P 32(R3), [V4.B16, V5.B16]                 \
	ACTIVATIONS16()                                 \
	EVEN6(0, 2, 3, 5, EVEN_LANES, 0)                \
	ODD6(0, 1, 2, 3, 4, 5, ODD_LANES, 0)

#define HEAD6() \
	CONSTS6() \
	FACTORS_TORCHAO()

// func torchao6Dotprod(a *TorchAOArgs)
TEXT ·torchao6Dotprod(SB), NOSPLIT, $0-8
	TORCHAO(HEAD6, START_SUM, UNIT6, PAIRS)

#define HEAD6_ZEROS() \
	CONSTS6() \
	FACTORS_ZEROS(6, 1)

// func torchao6ZerosDotprod(a *TorchAOArgs)
TEXT ·torchao6ZerosDotprod(SB), NOSPLIT, $0-8
	TORCHAO_ZEROS(HEAD6_ZEROS, START_TERM, UNIT6, PAIRS)

// 7 bits.
#define UNIT7()                                         \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	VLD1.P 48(R3), [V4.B16, V5.B16, V6.B16]         \
	ACTIVATIONS16()                                 \
	EVEN7(0, 2, 4, 6, EVEN_LANES, 0)                \
	ODD7(0, 1, 2, 3, 4, 5, 6, ODD_LANES, 0)

#define HEAD7() \
	CONSTS7() \
	FACTORS_TORCHAO()

// func torchao7Dotprod(a *TorchAOArgs)
TEXT ·torchao7Dotprod(SB), NOSPLIT, $0-8
	TORCHAO(HEAD7, START_SUM, UNIT7, PAIRS)

#define HEAD7_ZEROS() \
	CONSTS7() \
	FACTORS_ZEROS(7, 1)

// func torchao7ZerosDotprod(a *TorchAOArgs)
TEXT ·torchao7ZerosDotprod(SB), NOSPLIT, $0-8
	TORCHAO_ZEROS(HEAD7_ZEROS, START_TERM, UNIT7, PAIRS)

// 8 bits: the lanes are the codes q.
#define UNIT8()                                         \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	ACTIVATIONS16()                                 \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16] \
	EVEN_LANES(0, 0, 2, 4, 6)                       \
	ODD_LANES(0, 1, 3, 5, 7)

// func torchao8Dotprod(a *TorchAOArgs)
TEXT ·torchao8Dotprod(SB), NOSPLIT, $0-8
	TORCHAO(FACTORS_TORCHAO, ZERO4, UNIT8, PAIRS)

#define HEAD8_ZEROS() \
	FACTORS_TORCHAO() \
	VMOVI $0, V31.B16

// func torchao8ZerosDotprod(a *TorchAOArgs)
TEXT ·torchao8ZerosDotprod(SB), NOSPLIT, $0-8
	TORCHAO_ZEROS(HEAD8_ZEROS, ZERO4, UNIT8, PAIRS)
