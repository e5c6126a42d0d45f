//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// Instructions of ARMv8.0 only. FCVTAS rounds ties away from zero, FCVTNS rounds ties to even. Neither depends on FPCR.

// MULTIPLY loads 32 values into V0 to V7 and multiplies them with V20.
#define MULTIPLY(x) \
	VLD1.P 64(x), [V0.S4, V1.S4, V2.S4, V3.S4] \
	VLD1.P 64(x), [V4.S4, V5.S4, V6.S4, V7.S4] \
	VFMUL_4S(20, 0, 0)                         \
	VFMUL_4S(20, 1, 1)                         \
	VFMUL_4S(20, 2, 2)                         \
	VFMUL_4S(20, 3, 3)                         \
	VFMUL_4S(20, 4, 4)                         \
	VFMUL_4S(20, 5, 5)                         \
	VFMUL_4S(20, 6, 6)                         \
	VFMUL_4S(20, 7, 7)

// WORDS cuts the integers in V0 to V7 to 16 bits, in V16 to V19.
#define WORDS() \
	VSQXTN_4H(0, 16)  \
	VSQXTN_4H(2, 17)  \
	VSQXTN_4H(4, 18)  \
	VSQXTN_4H(6, 19)  \
	VSQXTN2_8H(1, 16) \
	VSQXTN2_8H(3, 17) \
	VSQXTN2_8H(5, 18) \
	VSQXTN2_8H(7, 19)

// CODES cuts V16 to V19 to 8 bits and stores them.
#define CODES(q) \
	VSQXTN_8B(16, 0)               \
	VSQXTN_8B(18, 1)               \
	VSQXTN2_16B(17, 0)             \
	VSQXTN2_16B(19, 1)             \
	VST1.P [V0.B16, V1.B16], 32(q)

// func quantizeAwayBlocks(q *int8, x, factors *float32, blocks, block int, zero int32)
TEXT ·quantizeAwayBlocks(SB), NOSPLIT, $0-44
	MOVD q+0(FP), R0
	MOVD x+8(FP), R1
	MOVD factors+16(FP), R2
	MOVD blocks+24(FP), R3
	MOVD block+32(FP), R4
	MOVW zero+40(FP), R5
	VDUP R5, V21.H8

block:
	VLD1R.P 4(R2), [V20.S4]
	MOVD    R4, R6

values:
	MULTIPLY(R1)
	VFCVTAS_4S(0, 0)
	VFCVTAS_4S(1, 1)
	VFCVTAS_4S(2, 2)
	VFCVTAS_4S(3, 3)
	VFCVTAS_4S(4, 4)
	VFCVTAS_4S(5, 5)
	VFCVTAS_4S(6, 6)
	VFCVTAS_4S(7, 7)
	WORDS()
	VSQADD_8H(21, 16, 16)
	VSQADD_8H(21, 17, 17)
	VSQADD_8H(21, 18, 18)
	VSQADD_8H(21, 19, 19)
	CODES(R0)
	SUBS $32, R6
	BNE  values
	SUBS $1, R3
	BNE  block
	RET

// func quantizeEvenBlocks(q *int8, x, factors *float32, blocks, block int)
TEXT ·quantizeEvenBlocks(SB), NOSPLIT, $0-40
	MOVD q+0(FP), R0
	MOVD x+8(FP), R1
	MOVD factors+16(FP), R2
	MOVD blocks+24(FP), R3
	MOVD block+32(FP), R4

block:
	VLD1R.P 4(R2), [V20.S4]
	MOVD    R4, R6

values:
	MULTIPLY(R1)
	VFCVTNS_4S(0, 0)
	VFCVTNS_4S(1, 1)
	VFCVTNS_4S(2, 2)
	VFCVTNS_4S(3, 3)
	VFCVTNS_4S(4, 4)
	VFCVTNS_4S(5, 5)
	VFCVTNS_4S(6, 6)
	VFCVTNS_4S(7, 7)
	WORDS()
	CODES(R0)
	SUBS $32, R6
	BNE  values
	SUBS $1, R3
	BNE  block
	RET

// func groupSumsBlocks(dst *int32, q *int8, groups, group int)
TEXT ·groupSumsBlocks(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD q+8(FP), R1
	MOVD groups+16(FP), R2
	MOVD group+24(FP), R3

group:
	VEOR V0.B16, V0.B16, V0.B16
	MOVD R3, R4

codes:
	VLD1.P 16(R1), [V1.B16]
	VSADDLP_8H(1, 1)
	VSADALP_4S(1, 0)
	SUBS   $16, R4
	BNE    codes

	VADDV   V0.S4, V0
	FMOVS.P F0, 4(R0)
	SUBS    $1, R2
	BNE     group
	RET
