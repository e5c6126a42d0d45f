//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// The products of one row of x with four panels. The 16 independent sums keep four pipes with a latency of four cycles
// busy.

// ARGUMENTS: R0 out, R2 and R10 to R12 the panels, R3 x, R4 columns, R5 bias; V16 to V31 the sums, four a panel.
#define ARGUMENTS() \
	MOVD out+0(FP), R0             \
	MOVD w+8(FP), R2               \
	MOVD panel+16(FP), R6          \
	MOVD x+24(FP), R3              \
	MOVD k+32(FP), R4              \
	MOVD bias+40(FP), R5           \
	ADD  R6, R2, R10               \
	ADD  R6, R10, R11              \
	ADD  R6, R11, R12              \
	VEOR V16.B16, V16.B16, V16.B16 \
	VEOR V17.B16, V17.B16, V17.B16 \
	VEOR V18.B16, V18.B16, V18.B16 \
	VEOR V19.B16, V19.B16, V19.B16 \
	VEOR V20.B16, V20.B16, V20.B16 \
	VEOR V21.B16, V21.B16, V21.B16 \
	VEOR V22.B16, V22.B16, V22.B16 \
	VEOR V23.B16, V23.B16, V23.B16 \
	VEOR V24.B16, V24.B16, V24.B16 \
	VEOR V25.B16, V25.B16, V25.B16 \
	VEOR V26.B16, V26.B16, V26.B16 \
	VEOR V27.B16, V27.B16, V27.B16 \
	VEOR V28.B16, V28.B16, V28.B16 \
	VEOR V29.B16, V29.B16, V29.B16 \
	VEOR V30.B16, V30.B16, V30.B16 \
	VEOR V31.B16, V31.B16, V31.B16

// PANEL multiplies four vectors of weights with column j of x.
#define PANEL(at, j, d) \
	FLDPQ.P 32(at), (F4, F5) \
	FLDPQ.P 32(at), (F6, F7) \
	VFMLA_4S(j, 0, 4, d)     \
	VFMLA_4S(j, 0, 5, d+1)   \
	VFMLA_4S(j, 0, 6, d+2)   \
	VFMLA_4S(j, 0, 7, d+3)

#define COLUMN(j) \
	PANEL(R2, j, 16)  \
	PANEL(R10, j, 20) \
	PANEL(R11, j, 24) \
	PANEL(R12, j, 28)

// PANELPAIR multiplies four vectors of pairs of BF16 with columns j and j+1 of x. V15 is the mask of upper halves.
#define PANELPAIR(at, j, d) \
	FLDPQ.P 32(at), (F4, F5)        \
	FLDPQ.P 32(at), (F6, F7)        \
	VSHL    $16, V4.S4, V8.S4       \
	VSHL    $16, V5.S4, V9.S4       \
	VSHL    $16, V6.S4, V10.S4      \
	VSHL    $16, V7.S4, V11.S4      \
	VAND    V15.B16, V4.B16, V4.B16 \
	VAND    V15.B16, V5.B16, V5.B16 \
	VAND    V15.B16, V6.B16, V6.B16 \
	VAND    V15.B16, V7.B16, V7.B16 \
	VFMLA_4S(j, 0, 8, d)            \
	VFMLA_4S(j, 0, 9, d+1)          \
	VFMLA_4S(j, 0, 10, d+2)         \
	VFMLA_4S(j, 0, 11, d+3)         \
	VFMLA_4S(j+1, 0, 4, d)          \
	VFMLA_4S(j+1, 0, 5, d+1)        \
	VFMLA_4S(j+1, 0, 6, d+2)        \
	VFMLA_4S(j+1, 0, 7, d+3)

#define PAIR(j) \
	PANELPAIR(R2, j, 16)  \
	PANELPAIR(R10, j, 20) \
	PANELPAIR(R11, j, 24) \
	PANELPAIR(R12, j, 28)

// FINISH adds the biases of a panel to sums and writes them, NaNs as V4.
#define FINISH(n, a, b, c, d) \
	VLD1.P 64(R5), [V0.S4, V1.S4, V2.S4, V3.S4] \
	VFADD_4S(0, n+0, n+0)                       \
	VFADD_4S(1, n+1, n+1)                       \
	VFADD_4S(2, n+2, n+2)                       \
	VFADD_4S(3, n+3, n+3)                       \
	VFCMEQ_4S(n+0, n+0, 5)                      \
	VFCMEQ_4S(n+1, n+1, 6)                      \
	VFCMEQ_4S(n+2, n+2, 7)                      \
	VFCMEQ_4S(n+3, n+3, 8)                      \
	VBIF_16B(5, 4, n+0)                         \
	VBIF_16B(6, 4, n+1)                         \
	VBIF_16B(7, 4, n+2)                         \
	VBIF_16B(8, 4, n+3)                         \
	VST1.P [a.S4, b.S4, c.S4, d.S4], 64(R0)

#define RESULTS() \
	MOVD $0x7fc00000, R6           \
	VDUP R6, V4.S4                 \
	FINISH(16, V16, V17, V18, V19) \
	FINISH(20, V20, V21, V22, V23) \
	FINISH(24, V24, V25, V26, V27) \
	FINISH(28, V28, V29, V30, V31)

// func groupNEON(out *float32, w *uint32, panel int, x *float32, k int, bias *float32)
TEXT ·groupNEON(SB), NOSPLIT, $0-48
	ARGUMENTS()

loop:
	FMOVQ.P 16(R3), F0
	COLUMN(0)
	COLUMN(1)
	COLUMN(2)
	COLUMN(3)
	SUBS    $4, R4
	BNE     loop
	RESULTS()
	RET

// func groupBF16NEON(out *float32, w *uint32, panel int, x *float32, k int, bias *float32)
TEXT ·groupBF16NEON(SB), NOSPLIT, $0-48
	ARGUMENTS()
	VMVNI_4S(15)

loop:
	FMOVQ.P 16(R3), F0
	PAIR(0)
	PAIR(2)
	SUBS    $4, R4
	BNE     loop
	RESULTS()
	RET
