//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// SOFTCONST sets all lanes of a register to the float32 with these bits.
#define SOFTCONST(bits, v) \
	MOVD $bits, R12 \
	VDUP R12, v.S4

// SOFTTERM multiplies the series in V6 by V4 and adds a factor.
#define SOFTTERM(c) \
	VFMUL_4S(4, 6, 6) \
	VFADD_4S(c, 6, 6)

// func stepSoftBlock(value, grad *float32, least *int8, x, m, v *float32, blocks, choices int, step *float32)
//
// A block is done in two halves. R14 is the offset of the half, R11 of a choice, R10 the logits of the half. e lies in
// the frame.
TEXT ·stepSoftBlock(SB), NOSPLIT, $64-72
	MOVD value+0(FP), R0
	MOVD grad+8(FP), R1
	MOVD least+16(FP), R2
	MOVD x+24(FP), R3
	MOVD m+32(FP), R4
	MOVD v+40(FP), R5
	MOVD blocks+48(FP), R6
	MOVD choices+56(FP), R7
	MOVD step+64(FP), R8
	LSL  $5, R7, R7 // bytes of a block
	MOVD $e-64(SP), R9
	SOFTCONST(0x3fb8aa3b, V16) // softLog2e
	SOFTCONST(0x3f317200, V17) // softLn2Hi
	SOFTCONST(0x35bfbe8e, V18) // softLn2Lo
	SOFTCONST(0xc2200000, V19) // softLeast
	SOFTCONST(0x3ab60b61, V20) // softSeries[0]
	SOFTCONST(0x3c088889, V21) // softSeries[1]
	SOFTCONST(0x3d2aaaab, V22) // softSeries[2]
	SOFTCONST(0x3e2aaaab, V23) // softSeries[3]
	SOFTCONST(0x3f000000, V24) // softSeries[4]
	SOFTCONST(0x3f800000, V25) // 1
	SOFTCONST(0x3f666666, V26) // softBeta1
	SOFTCONST(0x3dcccccd, V27) // softRest1
	SOFTCONST(0x3f7d70a4, V28) // softBeta2
	SOFTCONST(0x3c23d70a, V29) // softRest2
	SOFTCONST(0x37800000, V30) // softEpsilon
	SOFTCONST(0x43000000, V31) // 128

block:
	MOVD $0, R14

half:
	ADD  R14, R3, R10
	MOVD $0, R15 // offset of Colder, then of Next

softmax:
	VLD1 (R10), [V0.S4]
	MOVD $32, R11

top:
	ADD  R11, R10, R12
	VLD1 (R12), [V1.S4]
	VFMAX_4S(1, 0, 0)
	ADD  $32, R11
	CMP  R11, R7
	BNE  top

	ADD   R15, R8, R12
	VLD1R (R12), [V2.S4]
	VEOR  V3.B16, V3.B16, V3.B16
	MOVD  $0, R11
	MOVD  R9, R13

sum:
	ADD    R11, R10, R12
	VLD1   (R12), [V4.S4]
	VFSUB_4S(0, 4, 4)
	VFMUL_4S(2, 4, 4)
	VFCMGE_4S(19, 4, 7)
	VFMUL_4S(16, 4, 5)
	VFRINTN_4S(5, 5)
	VFMUL_4S(17, 5, 6)
	VFSUB_4S(6, 4, 4)
	VFMUL_4S(18, 5, 6)
	VFSUB_4S(6, 4, 4)
	VMOV   V20.B16, V6.B16
	SOFTTERM(21)
	SOFTTERM(22)
	SOFTTERM(23)
	SOFTTERM(24)
	SOFTTERM(25)
	SOFTTERM(25)
	VFCVTNS_4S(5, 5)
	VSHL   $23, V5.S4, V5.S4
	VADD   V5.S4, V6.S4, V6.S4
	VAND   V7.B16, V6.B16, V6.B16
	VST1.P [V6.S4], 16(R13)
	VFADD_4S(6, 3, 3)
	ADD    $32, R11
	CMP    R11, R7
	BNE    sum
	VFDIV_4S(3, 25, 3)

	VEOR V1.B16, V1.B16, V1.B16 // the choice
	MOVD $0, R11
	MOVD R9, R13
	ADD  R14, R1, R12
	VLD1 (R12), [V0.S4]
	ADD  $8, R8, R12
	VLD1R (R12), [V2.S4]
	VFMUL_4S(2, 0, 0) // grad*Slope

choice:
	// the distance to the choice
	VMOV V1.B16, V4.B16
	VEOR V5.B16, V5.B16, V5.B16
	MOVD R9, R12
	ADD  R7>>1, R9, R17

distance:
	VLD1.P 16(R12), [V6.S4]
	VFMUL_4S(4, 6, 6)
	VFADD_4S(6, 5, 5)
	VFSUB_4S(25, 4, 4)
	CMP    R12, R17
	BNE    distance
	VFMUL_4S(3, 5, 5)
	CBNZ   R15, mean

	VLD1.P 16(R13), [V6.S4]
	VFMUL_4S(3, 6, 6)
	VFMUL_4S(0, 6, 6)
	VFMUL_4S(5, 6, 6) // the gradient
	VFADD_4S(25, 1, 1)
	ADD    R14, R11, R16
	ADD    R16, R4, R12
	VLD1   (R12), [V7.S4]
	VFMUL_4S(26, 7, 7)
	VFMUL_4S(27, 6, 4)
	VFADD_4S(4, 7, 7)
	VST1   [V7.S4], (R12)
	ADD    R16, R5, R12
	VLD1   (R12), [V4.S4]
	VFMUL_4S(28, 4, 4)
	VFMUL_4S(6, 6, 6)
	VFMUL_4S(29, 6, 6)
	VFADD_4S(6, 4, 4)
	VST1   [V4.S4], (R12)
	ADD    $12, R8, R12
	VLD1R.P 4(R12), [V5.S4] // Rate
	VLD1R  (R12), [V6.S4]   // Second
	VFMUL_4S(6, 4, 4)
	VFSQRT_4S(4, 4)
	VFADD_4S(30, 4, 4)
	VFMUL_4S(5, 7, 7)
	VFDIV_4S(4, 7, 7)
	ADD    R11, R10, R12
	VLD1   (R12), [V4.S4]
	VFSUB_4S(7, 4, 4)
	VST1   [V4.S4], (R12)
	ADD    $32, R11
	CMP    R11, R7
	BNE    choice
	MOVD   $4, R15
	B      softmax

mean:
	ADD    R14>>2, R2, R12
	MOVWU  (R12), R12
	EOR    $0x80808080, R12 // least + 128
	FMOVS  R12, F4
	VUSHLL $0, V4.B8, V4.H8
	VUSHLL $0, V4.H4, V4.S4
	VSCVTF_4S(4, 4)
	VFSUB_4S(31, 4, 4)
	VFSUB_4S(5, 4, 4)
	ADD    R14, R0, R12
	VST1   [V4.S4], (R12)
	ADD    R14, R1, R12
	VEOR   V4.B16, V4.B16, V4.B16
	VST1   [V4.S4], (R12)
	ADD    $16, R14
	CMP    $32, R14
	BNE    half

	ADD  $32, R0
	ADD  $32, R1
	ADD  $8, R2
	ADD  R7, R3
	ADD  R7, R4
	ADD  R7, R5
	SUBS $1, R6
	BNE  block
	RET
