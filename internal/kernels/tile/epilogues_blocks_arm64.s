//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"

// The epilogues of ggml's blocks. V0 and V1 are the 8 outputs. NaNs are not replaced.

// func epilogueMinNEON(out *float32, t *int32, groups int, scales, mins, as, asum *float32, step int)
TEXT ·epilogueMinNEON(SB), NOSPLIT, $0-64
	MOVD out+0(FP), R0
	MOVD t+8(FP), R1
	MOVD groups+16(FP), R2
	MOVD scales+24(FP), R3
	MOVD mins+32(FP), R5
	MOVD as+40(FP), R4
	MOVD asum+48(FP), R6
	MOVD step+56(FP), R7
	VZERO(0)
	VZERO(1)

group:
	VLD1.P  32(R1), [V2.S4, V3.S4]
	VLD1.P  32(R3), [V16.S4, V17.S4]
	VLD1.P  32(R5), [V20.S4, V21.S4]
	VLD1R.P (R4)(R7), [V6.S4]
	VLD1R.P (R6)(R7), [V7.S4]
	VSCVTF_4S(2, 2)
	VSCVTF_4S(3, 3)
	VFMUL_4S(6, 16, 16)
	VFMUL_4S(6, 17, 17)
	VFMLA   V16.S4, V2.S4, V0.S4
	VFMLA   V17.S4, V3.S4, V1.S4
	VFMLA   V7.S4, V20.S4, V0.S4
	VFMLA   V7.S4, V21.S4, V1.S4
	SUBS    $1, R2
	BNE     group
	VST1    [V0.S4, V1.S4], (R0)
	RET

// func epilogueSubsNEON(out *float32, t *int32, a *SubsArgs, blocks int, as *float32, sums *int32, step, sumStep int)
TEXT ·epilogueSubsNEON(SB), NOSPLIT, $0-64
	MOVD out+0(FP), R0
	MOVD t+8(FP), R1
	MOVD a+16(FP), R2
	MOVD blocks+24(FP), R6
	MOVD as+32(FP), R4
	MOVD sums+40(FP), R5
	MOVD step+48(FP), R7
	MOVD sumStep+56(FP), R8
	MOVD (SubsArgs_BlocksArgs+BlocksArgs_Scales)(R2), R3
	MOVD SubsArgs_Factors(R2), R9
	MOVD SubsArgs_SubMins(R2), R10
	MOVD SubsArgs_Mins(R2), R11
	MOVD SubsArgs_Each(R2), R12
	VZERO(0)
	VZERO(1)

block:
	VZERO(4)
	VZERO(5)
	MOVD R12, R13

factor:
	VLD1.P 32(R1), [V2.S4, V3.S4]
	VLD1.P 32(R9), [V16.S4, V17.S4]
	VMLA_4S(16, 2, 4)
	VMLA_4S(17, 3, 5)
	SUBS   $1, R13
	BNE    factor
	VLD1R.P (R4)(R7), [V6.S4]
	VLD1.P 32(R3), [V16.S4, V17.S4]
	VSCVTF_4S(4, 4)
	VSCVTF_4S(5, 5)
	VFMUL_4S(6, 16, 16)
	VFMUL_4S(6, 17, 17)
	VFMLA  V16.S4, V4.S4, V0.S4
	VFMLA  V17.S4, V5.S4, V1.S4
	CBZ    R10, next
	VZERO(4)
	VZERO(5)
	MOVD   R12, R13

minimum:
	VLD1R.P (R5)(R8), [V2.S4]
	VLD1.P  32(R10), [V16.S4, V17.S4]
	VMLA_4S(16, 2, 4)
	VMLA_4S(17, 2, 5)
	SUBS    $1, R13
	BNE     minimum
	VLD1.P  32(R11), [V16.S4, V17.S4]
	VSCVTF_4S(4, 4)
	VSCVTF_4S(5, 5)
	VFMUL_4S(6, 16, 16)
	VFMUL_4S(6, 17, 17)
	VFMLS   V16.S4, V4.S4, V0.S4
	VFMLS   V17.S4, V5.S4, V1.S4

next:
	SUBS $1, R6
	BNE  block
	VST1 [V0.S4, V1.S4], (R0)
	RET
