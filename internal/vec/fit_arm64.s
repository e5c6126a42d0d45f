//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// A Fit's data has 192 bytes for each pair of values: values at 0, products with the weights at 64, weights at 128. Each
// of these has 4 bytes for each of 16 lanes. The functions here run for 4 lanes at a time.

// FITGROUP sets V(a) and V(b) to 16 values of the group at R7, times V(unit), as int16. It moves R7 to the next group.
#define FITGROUP(unit, a, b) \
	FITUNITS(unit)   \
	FITPACK(a, b)

// FITMOVED is FITGROUP with the offset at R10, which moves to the next one, added.
#define FITMOVED(unit, a, b) \
	FITUNITS(unit)           \
	VLD1R.P 4(R10), [V4.S4]  \
	VFADD_4S(4, 0, 0)        \
	VFADD_4S(4, 1, 1)        \
	VFADD_4S(4, 2, 2)        \
	VFADD_4S(4, 3, 3)        \
	FITPACK(a, b)

#define FITUNITS(unit) \
	VLD1 (R7), [V0.S4, V1.S4, V2.S4, V3.S4] \
	ADD  R6, R7                             \
	VFMUL_4S(unit, 0, 0)                    \
	VFMUL_4S(unit, 1, 1)                    \
	VFMUL_4S(unit, 2, 2)                    \
	VFMUL_4S(unit, 3, 3)

#define FITPACK(a, b) \
	VFCVTNS_4S(0, 0)                        \
	VFCVTNS_4S(1, 1)                        \
	VFCVTNS_4S(2, 2)                        \
	VFCVTNS_4S(3, 3)                        \
	VUZP1 V1.H8, V0.H8, a.H8                \
	VUZP1 V3.H8, V2.H8, b.H8

// FITCOLUMNS sets V4-V7 to the columns of the rows a, b, c, d of pairs of int16.
#define FITCOLUMNS(a, b, c, d) \
	VTRN1 b.S4, a.S4, V0.S4   \
	VTRN2 b.S4, a.S4, V1.S4   \
	VTRN1 d.S4, c.S4, V2.S4   \
	VTRN2 d.S4, c.S4, V3.S4   \
	VZIP1 V2.D2, V0.D2, V4.D2 \
	VZIP1 V3.D2, V1.D2, V5.D2 \
	VZIP2 V2.D2, V0.D2, V6.D2 \
	VZIP2 V3.D2, V1.D2, V7.D2

// FITWEIGHTS stores V4-V7, which are weights of pairs at from, and their products with the values there.
#define FITWEIGHTS(from) \
	FMOVQ from(R8), F0             \
	FMOVQ (from+192)(R8), F1       \
	FMOVQ (from+384)(R8), F2       \
	FMOVQ (from+576)(R8), F3       \
	FMOVQ F4, (from+128)(R8)       \
	FMOVQ F5, (from+320)(R8)       \
	FMOVQ F6, (from+512)(R8)       \
	FMOVQ F7, (from+704)(R8)       \
	VSQRDMULH_8H(0, 4, 4)          \
	VSQRDMULH_8H(1, 5, 5)          \
	VSQRDMULH_8H(2, 6, 6)          \
	VSQRDMULH_8H(3, 7, 7)          \
	FMOVQ F4, (from+64)(R8)        \
	FMOVQ F5, (from+256)(R8)       \
	FMOVQ F6, (from+448)(R8)       \
	FMOVQ F7, (from+640)(R8)

// func fitLoadBlock(data *int16, x, w, units *float32, n int)
TEXT ·fitLoadBlock(SB), NOSPLIT, $0-40
	MOVD data+0(FP), R0
	MOVD x+8(FP), R1
	MOVD w+16(FP), R2
	MOVD units+24(FP), R3
	MOVD n+32(FP), R4
	LSL  $2, R4, R6 // bytes of a group
	MOVD $4, R5

part:
	ADD     $64, R3, R7 // weights
	VLD1R.P 4(R3), [V24.S4]
	VLD1R.P 4(R3), [V25.S4]
	VLD1R.P 4(R3), [V26.S4]
	VLD1R.P 4(R3), [V27.S4]
	VLD1R.P 4(R7), [V28.S4]
	VLD1R.P 4(R7), [V29.S4]
	VLD1R.P 4(R7), [V30.S4]
	VLD1R.P 4(R7), [V31.S4]
	MOVD    R0, R8
	MOVD    R4, R9

loadValues:
	MOVD  R1, R7
	ADD   $112, R3, R10 // offsets of the part
	FITMOVED(24, V16, V20)
	FITMOVED(25, V17, V21)
	FITMOVED(26, V18, V22)
	FITMOVED(27, V19, V23)
	FITCOLUMNS(V16, V17, V18, V19)
	FMOVQ F4, (R8)
	FMOVQ F5, 192(R8)
	FMOVQ F6, 384(R8)
	FMOVQ F7, 576(R8)
	FITCOLUMNS(V20, V21, V22, V23)
	FMOVQ F4, 768(R8)
	FMOVQ F5, 960(R8)
	FMOVQ F6, 1152(R8)
	FMOVQ F7, 1344(R8)
	MOVD  R2, R7
	FITGROUP(28, V16, V20)
	FITGROUP(29, V17, V21)
	FITGROUP(30, V18, V22)
	FITGROUP(31, V19, V23)
	FITCOLUMNS(V16, V17, V18, V19)
	FITWEIGHTS(0)
	FITCOLUMNS(V20, V21, V22, V23)
	FITWEIGHTS(768)
	ADD   $1536, R8
	ADD   $64, R1
	ADD   $64, R2
	SUBS  $16, R9
	BNE   loadValues

	// three more groups of the part
	ADD  R6<<1, R6, R7
	ADD  R7, R1
	ADD  R7, R2
	ADD  $16, R0
	SUBS $1, R5
	BNE  part
	RET

// FITCLEAR clears the sums of a candidate.
#define FITCLEAR(a, b, c, d) \
	VEOR a.B16, a.B16, a.B16 \
	VEOR b.B16, b.B16, b.B16 \
	VEOR c.B16, c.B16, c.B16 \
	VEOR d.B16, d.B16, d.B16

// FITLIMITS loads a Fit's limits at R3 to V20-V22.
#define FITLIMITS \
	VLD1R.P 4(R3), [V20.S4] \
	VLD1R.P 4(R3), [V21.S4] \
	VLD1R.P 4(R3), [V22.S4]

// FITEACH applies an instruction to the steps of four candidates, V26-V29.
#define FITEACH(OP, m) \
	OP(m, 26, 26) \
	OP(m, 27, 27) \
	OP(m, 28, 28) \
	OP(m, 29, 29)

// FITSUMS adds up four candidates, V16-V19, over the R4 values at R1. It sets V0, V4, V8 and V12 to A, and V2, V6, V10
// and V14 to B, as float32. R8 and R9 change.
#define FITSUMS(label) \
	FITCLEAR(V0, V1, V2, V3)    \
	FITCLEAR(V4, V5, V6, V7)    \
	FITCLEAR(V8, V9, V10, V11)  \
	FITCLEAR(V12, V13, V14, V15) \
	MOVD R1, R8                 \
	MOVD R4, R9                 \
label: \
	FMOVQ (R8), F23             \
	FMOVQ 64(R8), F24           \
	VSQRDMULH_8H(16, 23, 26)    \
	VSQRDMULH_8H(17, 23, 27)    \
	VSQRDMULH_8H(18, 23, 28)    \
	VSQRDMULH_8H(19, 23, 29)    \
	FITEACH(VSQRDMULH_8H, 20)   \
	FITEACH(VSMAX_8H, 21)       \
	FITEACH(VSMIN_8H, 22)       \
	FMOVQ 128(R8), F23          \
	ADD $192, R8                \
	VSMLAL_4S(24, 26, 0)        \
	VSMLAL2_4S(24, 26, 1)       \
	VSMLAL_4S(24, 27, 4)        \
	VSMLAL2_4S(24, 27, 5)       \
	VSMLAL_4S(24, 28, 8)        \
	VSMLAL2_4S(24, 28, 9)       \
	VSMLAL_4S(24, 29, 12)       \
	VSMLAL2_4S(24, 29, 13)      \
	VMUL_8H(26, 26, 26)         \
	VMUL_8H(27, 27, 27)         \
	VMUL_8H(28, 28, 28)         \
	VMUL_8H(29, 29, 29)         \
	VSMLAL_4S(23, 26, 2)        \
	VSMLAL2_4S(23, 26, 3)       \
	VSMLAL_4S(23, 27, 6)        \
	VSMLAL2_4S(23, 27, 7)       \
	VSMLAL_4S(23, 28, 10)       \
	VSMLAL2_4S(23, 28, 11)      \
	VSMLAL_4S(23, 29, 14)       \
	VSMLAL2_4S(23, 29, 15)      \
	SUBS $2, R9                 \
	BNE label                   \
	VADDP V1.S4, V0.S4, V0.S4   \
	VADDP V3.S4, V2.S4, V2.S4   \
	VADDP V5.S4, V4.S4, V4.S4   \
	VADDP V7.S4, V6.S4, V6.S4   \
	VADDP V9.S4, V8.S4, V8.S4   \
	VADDP V11.S4, V10.S4, V10.S4 \
	VADDP V13.S4, V12.S4, V12.S4 \
	VADDP V15.S4, V14.S4, V14.S4 \
	VSCVTF_4S(0, 0)             \
	VSCVTF_4S(2, 2)             \
	VSCVTF_4S(4, 4)             \
	VSCVTF_4S(6, 6)             \
	VSCVTF_4S(8, 8)             \
	VSCVTF_4S(10, 10)           \
	VSCVTF_4S(12, 12)           \
	VSCVTF_4S(14, 14)

// FITBETTER keeps in V25, V30 and V31 the best score, its A and its B: of a candidate with these sums.
#define FITBETTER(a, b, A, B) \
	VFMUL_4S(a, a, 26)         \
	VFDIV_4S(b, 26, 26)        \
	VFCMGT_4S(25, 26, 27)      \
	VBIT V27.B16, A.B16, V30.B16 \
	VBIT V27.B16, B.B16, V31.B16 \
	VBIT V27.B16, V26.B16, V25.B16

// func fitSearchBlock(scale *float32, data *int16, starts, limits *uint32, n int)
TEXT ·fitSearchBlock(SB), NOSPLIT, $0-40
	MOVD scale+0(FP), R0
	MOVD data+8(FP), R1
	MOVD limits+24(FP), R3
	MOVD n+32(FP), R4
	FITLIMITS
	MOVD $4, R5

searchPart:
	VEOR V25.B16, V25.B16, V25.B16
	VEOR V30.B16, V30.B16, V30.B16
	MOVD $0x3f800000, R8
	VDUP R8, V31.S4
	MOVD starts+16(FP), R2
	MOVD $4, R6

four:
	FMOVQ (R2), F16
	FMOVQ 64(R2), F17
	FMOVQ 128(R2), F18
	FMOVQ 192(R2), F19
	ADD   $256, R2
	FITSUMS(searchValues)
	FITBETTER(0, 2, V0, V2)
	FITBETTER(4, 6, V4, V6)
	FITBETTER(8, 10, V8, V10)
	FITBETTER(12, 14, V12, V14)
	SUBS  $1, R6
	BNE   four
	VFDIV_4S(31, 30, 30)
	FMOVQ F30, (R0)
	ADD   $16, R0
	ADD   $16, R1
	SUBS  $1, R5
	BNE   searchPart
	RET

// FITINVERSE sets register c to power (V23) over the scales V(s), as int16 twice.
#define FITINVERSE(s, d, c) \
	VFDIV_4S(s, 23, d)  \
	VFMAX_4S(24, d, d)  \
	VFMIN_4S(25, d, d)  \
	VFCVTNS_4S(d, d)    \
	VSLI $16, c.S4, c.S4

// FITGAIN sets register a to s*((a+a) - s*b).
#define FITGAIN(s, a, b) \
	VFMUL_4S(s, b, b) \
	VFADD_4S(a, a, a) \
	VFSUB_4S(b, a, a) \
	VFMUL_4S(s, a, a)

// FITCHOICE takes the index in register R8 and the gain in V(a) if it is greater than the gain in V0.
#define FITCHOICE(index, a, A) \
	MOVD index, R8                 \
	VDUP R8, V27.S4                \
	VFCMGT_4S(0, a, 26)            \
	VBIT V26.B16, V27.B16, V31.B16 \
	VBIT V26.B16, A.B16, V0.B16

// func fitChooseBlock(choice *int32, stored *float32, data *int16, limits *uint32, n int, power float32)
TEXT ·fitChooseBlock(SB), NOSPLIT, $0-44
	MOVD choice+0(FP), R0
	MOVD stored+8(FP), R2
	MOVD data+16(FP), R1
	MOVD limits+24(FP), R3
	MOVD n+32(FP), R4
	FITLIMITS
	MOVD $4, R5

choosePart:
	MOVD  $power+40(FP), R8
	VLD1R (R8), [V23.S4]
	MOVD  $0xc6fffe00, R8 // -32767
	VDUP  R8, V24.S4
	MOVD  $0x46fffe00, R8
	VDUP  R8, V25.S4
	FMOVQ (R2), F0
	FMOVQ 64(R2), F1
	FMOVQ 128(R2), F2
	FMOVQ 192(R2), F3
	FITINVERSE(0, 16, V16)
	FITINVERSE(1, 17, V17)
	FITINVERSE(2, 18, V18)
	FITINVERSE(3, 19, V19)
	FITSUMS(chooseValues)
	FMOVQ (R2), F26
	FMOVQ 64(R2), F27
	FMOVQ 128(R2), F28
	FMOVQ 192(R2), F29
	FITGAIN(26, 0, 2)
	FITGAIN(27, 4, 6)
	FITGAIN(28, 8, 10)
	FITGAIN(29, 12, 14)
	VEOR  V31.B16, V31.B16, V31.B16
	FITCHOICE($1, 4, V4)
	FITCHOICE($2, 8, V8)
	FITCHOICE($3, 12, V12)
	FMOVQ F31, (R0)
	ADD   $16, R0
	ADD   $16, R1
	ADD   $16, R2
	SUBS  $1, R5
	BNE   choosePart
	RET
