//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// func epilogueRowNEON(out *float32, t, sums *int32, factor, negZero int32, scales, bias *float32, rec float32)
TEXT ·epilogueRowNEON(SB), NOSPLIT, $0-52
	MOVD  out+0(FP), R0
	MOVD  t+8(FP), R1
	MOVD  sums+16(FP), R2
	MOVW  factor+24(FP), R3
	MOVW  negZero+28(FP), R4
	MOVD  scales+32(FP), R5
	MOVD  bias+40(FP), R6
	MOVWU rec+48(FP), R7
	VDUP  R3, V16.S4
	VDUP  R4, V17.S4
	VDUP  R7, V18.S4
	MOVW  $0x7fc00000, R8
	VDUP  R8, V19.S4
	VLD1  (R1), [V0.S4, V1.S4]
	VLD1  (R2), [V2.S4, V3.S4]
	VLD1  (R5), [V4.S4, V5.S4]
	VLD1  (R6), [V6.S4, V7.S4]
	VMUL_4S(16, 0, 0)
	VMUL_4S(16, 1, 1)
	VMUL_4S(17, 2, 2)
	VMUL_4S(17, 3, 3)
	VADD  V2.S4, V0.S4, V0.S4
	VADD  V3.S4, V1.S4, V1.S4
	VSCVTF_4S(0, 0)
	VSCVTF_4S(1, 1)
	VFMUL_4S(18, 4, 4)
	VFMUL_4S(18, 5, 5)
	VFMUL_4S(4, 0, 0)
	VFMUL_4S(5, 1, 1)
	VFADD_4S(6, 0, 0)
	VFADD_4S(7, 1, 1)
	VFCMEQ_4S(0, 0, 2)
	VFCMEQ_4S(1, 1, 3)
	VBIF_16B(2, 19, 0)
	VBIF_16B(3, 19, 1)
	VST1  [V0.S4, V1.S4], (R0)
	RET

// func addSumsNEON(t, sums *int32, groups int, factor int32)
TEXT ·addSumsNEON(SB), NOSPLIT, $0-28
	MOVD t+0(FP), R0
	MOVD sums+8(FP), R1
	MOVD groups+16(FP), R2
	MOVW factor+24(FP), R3
	VDUP R3, V16.S4

group:
	VLD1   (R0), [V0.S4, V1.S4]
	VLD1.P 32(R1), [V2.S4, V3.S4]
	VMUL_4S(16, 2, 2)
	VMUL_4S(16, 3, 3)
	VADD   V2.S4, V0.S4, V0.S4
	VADD   V3.S4, V1.S4, V1.S4
	VST1.P [V0.S4, V1.S4], 32(R0)
	SUBS   $1, R2
	BNE    group
	RET
