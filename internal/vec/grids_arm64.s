//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// The functions here run for 4 lanes at a time, as those of fit_arm64.s.

// GRIDSQUARE sets a to the products of q and itself.
#define GRIDSQUARE(q) VMUL_8H(q, q, q)

// GRIDADD adds the products of q with V(v) to the sums at low and high.
#define GRIDADD(v, q, low, high) \
	VSMLAL_4S(v, q, low)  \
	VSMLAL2_4S(v, q, high)

// GRIDTWICE sets register c to V(f), brought into V(least) .. V(most), as int16 twice.
#define GRIDTWICE(least, most, f, c) \
	VFMAX_4S(least, f, f)  \
	VFMIN_4S(most, f, f)   \
	VFCVTNS_4S(f, f)       \
	VSLI $16, c.S4, c.S4

// GRIDSUMS adds up two grids, with the inverses V18 and V19, the starts V20 and V21 and the shift V22, over the R4
// values at R1. It sets V0 and V1 to A, V4 and V5 to B, V8 and V9 to N, as float32. R8, R9 and V0-V17 change.
#define GRIDSUMS(label) \
	VEOR V0.B16, V0.B16, V0.B16    \
	VEOR V1.B16, V1.B16, V1.B16    \
	VEOR V2.B16, V2.B16, V2.B16    \
	VEOR V3.B16, V3.B16, V3.B16    \
	VEOR V4.B16, V4.B16, V4.B16    \
	VEOR V5.B16, V5.B16, V5.B16    \
	VEOR V6.B16, V6.B16, V6.B16    \
	VEOR V7.B16, V7.B16, V7.B16    \
	VEOR V8.B16, V8.B16, V8.B16    \
	VEOR V9.B16, V9.B16, V9.B16    \
	VEOR V10.B16, V10.B16, V10.B16 \
	VEOR V11.B16, V11.B16, V11.B16 \
	MOVD R1, R8                    \
	MOVD R4, R9                    \
label: \
	FMOVQ (R8), F14             \
	FMOVQ 64(R8), F15           \
	FMOVQ 128(R8), F16          \
	ADD   $192, R8              \
	VSQRDMULH_8H(18, 14, 12)    \
	VSQRDMULH_8H(19, 14, 13)    \
	VSQADD_8H(20, 12, 12)       \
	VSQADD_8H(21, 13, 13)       \
	VSQSHL2_8H(12, 12)          \
	VSQSHL2_8H(13, 13)          \
	VSSHL_8H(22, 12, 12)        \
	VSSHL_8H(22, 13, 13)        \
	GRIDADD(15, 12, 0, 2)       \
	GRIDADD(15, 13, 1, 3)       \
	GRIDADD(16, 12, 8, 10)      \
	GRIDADD(16, 13, 9, 11)      \
	GRIDSQUARE(12)              \
	GRIDSQUARE(13)              \
	GRIDADD(16, 12, 4, 6)       \
	GRIDADD(16, 13, 5, 7)       \
	SUBS $2, R9                 \
	BNE  label                  \
	VADDP V2.S4, V0.S4, V0.S4   \
	VADDP V3.S4, V1.S4, V1.S4   \
	VADDP V6.S4, V4.S4, V4.S4   \
	VADDP V7.S4, V5.S4, V5.S4   \
	VADDP V10.S4, V8.S4, V8.S4  \
	VADDP V11.S4, V9.S4, V9.S4  \
	VSCVTF_4S(0, 0)             \
	VSCVTF_4S(1, 1)             \
	VSCVTF_4S(4, 4)             \
	VSCVTF_4S(5, 5)             \
	VSCVTF_4S(8, 8)             \
	VSCVTF_4S(9, 9)

// GRIDLIMITS sets V23 to -32767 and V24 to 32767; R8 changes.
#define GRIDLIMITS \
	MOVD $0xc6fffe00, R8 \
	VDUP R8, V23.S4      \
	MOVD $0x46fffe00, R8 \
	VDUP R8, V24.S4

// GRIDSHIFT sets V22 to minus the shift in R8.
#define GRIDSHIFT \
	NEG  R8, R8     \
	VDUP R8, V22.H8

// func fitTotalsBlock(totals *float32, data *int16, n int)
TEXT ·fitTotalsBlock(SB), NOSPLIT, $0-24
	MOVD totals+0(FP), R0
	MOVD data+8(FP), R1
	MOVD n+16(FP), R4
	MOVD $1, R8
	VDUP R8, V7.H8
	MOVD $4, R5

totalsPart:
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16
	MOVD R1, R8
	MOVD R4, R9

totalsValues:
	FMOVQ 64(R8), F4
	FMOVQ 128(R8), F5
	ADD   $192, R8
	GRIDADD(7, 4, 0, 1)
	GRIDADD(7, 5, 2, 3)
	SUBS  $2, R9
	BNE   totalsValues
	VADDP V1.S4, V0.S4, V0.S4
	VADDP V3.S4, V2.S4, V2.S4
	VSCVTF_4S(0, 0)
	VSCVTF_4S(2, 2)
	FMOVQ F0, (R0)
	FMOVQ F2, 64(R0)
	ADD   $16, R0
	ADD   $16, R1
	SUBS  $1, R5
	BNE   totalsPart
	RET

// GRIDSCORE replaces the results of the GridSearch at R0 if the candidate with A, B and N has a higher score.
#define GRIDSCORE(a, b, n, A, B, N) \
	FMOVQ 192(R0), F12           \
	FMOVQ 128(R0), F13           \
	VFMUL_4S(12, n, 12)          \
	VFADD_4S(13, a, a)           \
	VFADD_4S(12, a, a)           \
	FMOVQ 384(R0), F12           \
	FMOVQ 320(R0), F13           \
	VFMUL_4S(12, n, 12)          \
	VFADD_4S(13, 12, 12)         \
	VFMUL_4S(12, n, 12)          \
	FMOVQ 256(R0), F13           \
	VFADD_4S(13, b, b)           \
	VFADD_4S(12, b, b)           \
	VFMAXNM_4S(25, b, b)         \
	VFMUL_4S(a, a, 12)           \
	VFDIV_4S(b, 12, 12)          \
	FMOVQ 448(R0), F13           \
	VFCMGT_4S(13, 12, 14)        \
	VBIT  V14.B16, V12.B16, V13.B16 \
	FMOVQ F13, 448(R0)           \
	FMOVQ 512(R0), F13           \
	VBIT  V14.B16, A.B16, V13.B16 \
	FMOVQ F13, 512(R0)           \
	FMOVQ 576(R0), F13           \
	VBIT  V14.B16, B.B16, V13.B16 \
	FMOVQ F13, 576(R0)           \
	FMOVQ 640(R0), F13           \
	VBIT  V14.B16, N.B16, V13.B16 \
	FMOVQ F13, 640(R0)

// func searchGridsBlock(lanes, list *float32, data *int16, n, fours, shift int)
TEXT ·searchGridsBlock(SB), NOSPLIT, $0-48
	MOVD lanes+0(FP), R0
	MOVD data+16(FP), R1
	MOVD n+24(FP), R4
	MOVD shift+40(FP), R8
	GRIDSHIFT
	GRIDLIMITS
	MOVD $0x43800000, R8 // 256
	VDUP R8, V25.S4
	MOVD $4, R5

searchPart:
	MOVD list+8(FP), R2
	MOVD fours+32(FP), R6
	LSL  $1, R6

two:
	VLD1R.P 4(R2), [V18.S4]
	VLD1R.P 4(R2), [V20.S4]
	VLD1R.P 4(R2), [V19.S4]
	VLD1R.P 4(R2), [V21.S4]
	FMOVQ   (R0), F12
	FMOVQ   64(R0), F13
	VFMUL_4S(12, 18, 18)
	VFMUL_4S(12, 19, 19)
	VFADD_4S(13, 20, 20)
	VFADD_4S(13, 21, 21)
	GRIDTWICE(23, 24, 18, V18)
	GRIDTWICE(23, 24, 19, V19)
	GRIDTWICE(23, 24, 20, V20)
	GRIDTWICE(23, 24, 21, V21)
	GRIDSUMS(searchValues)
	GRIDSCORE(0, 4, 8, V0, V4, V8)
	GRIDSCORE(1, 5, 9, V1, V5, V9)
	SUBS    $1, R6
	BNE     two
	ADD     $16, R0
	ADD     $16, R1
	SUBS    $1, R5
	BNE     searchPart
	RET

// GRIDGAIN takes the number R7 in V31 if the gain is above V30, with the sums of the grid with the zero point V(z) and
// the scale V(s).
#define GRIDGAIN(s, z, a, b, n, A) \
	FMOVQ (R0), F12       \
	FMOVQ 64(R0), F13     \
	VFMUL_4S(z, 12, 12)   \
	VFSUB_4S(12, a, a)    \
	VFADD_4S(a, a, a)     \
	VFADD_4S(n, n, n)     \
	VFMUL_4S(z, n, n)     \
	VFSUB_4S(n, b, b)     \
	VFMUL_4S(z, z, z)     \
	VFMUL_4S(13, z, z)    \
	VFADD_4S(z, b, b)     \
	VFMUL_4S(s, b, b)     \
	VFSUB_4S(b, a, a)     \
	VFMUL_4S(s, a, a)     \
	VFCMGT_4S(30, a, 12)  \
	VDUP  R7, V13.S4      \
	VBIT  V12.B16, A.B16, V30.B16   \
	VBIT  V12.B16, V13.B16, V31.B16 \
	ADD   $1, R7

// func chooseGridsBlock(choice *int32, lanes *float32, data *int16, n, count, shift int, power float32)
TEXT ·chooseGridsBlock(SB), NOSPLIT, $0-52
	MOVD choice+0(FP), R3
	MOVD lanes+8(FP), R0
	MOVD data+16(FP), R1
	MOVD n+24(FP), R4
	MOVD count+32(FP), R6
	MOVD shift+40(FP), R8
	GRIDSHIFT
	GRIDLIMITS
	MOVD  $power+48(FP), R8
	VLD1R (R8), [V25.S4]
	MOVD  $0x3f000000, R8
	VDUP  R8, V26.S4
	VFMUL_4S(26, 25, 26) // half
	MOVD  $4, R5

choosePart:
	MOVD $0xff800000, R8 // -Inf
	VDUP R8, V30.S4
	VEOR V31.B16, V31.B16, V31.B16
	MOVD $0, R7
	ADD  $128, R0, R2 // scales; zeros are 512 bytes further

chooseTwo:
	FMOVQ (R2), F27
	FMOVQ 64(R2), F28
	VFDIV_4S(27, 25, 18)
	VFDIV_4S(28, 25, 19)
	FMOVQ 512(R2), F12
	FMOVQ 576(R2), F13
	VFMUL_4S(12, 25, 20)
	VFMUL_4S(13, 25, 21)
	VFADD_4S(26, 20, 20)
	VFADD_4S(26, 21, 21)
	GRIDTWICE(23, 24, 18, V18)
	GRIDTWICE(23, 24, 19, V19)
	GRIDTWICE(23, 24, 20, V20)
	GRIDTWICE(23, 24, 21, V21)
	GRIDSUMS(chooseValues)
	FMOVQ 512(R2), F29
	GRIDGAIN(27, 29, 0, 4, 8, V0)
	FMOVQ 576(R2), F29
	GRIDGAIN(28, 29, 1, 5, 9, V1)
	ADD   $128, R2
	CMP   R6, R7
	BNE   chooseTwo
	FMOVQ F31, (R3)
	ADD   $16, R3
	ADD   $16, R0
	ADD   $16, R1
	SUBS  $1, R5
	BNE   choosePart
	RET
