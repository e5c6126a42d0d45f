// Shared by the kernels for tiles of 1, 2, 4 and 6 rows of x. Registers:
//
//	R0 out, R1 stride, R2 weights, R3 x, R4 columns left, R5 bias, R6 resume, R7 what to prefetch, R8 its step
//	V0 to V5 four columns of each row of x; V8 and on the sums, four vectors a row

// EACHn is OP for each row of sums: the first register's number, then all four.
#define EACH1(OP) \
	OP(8, V8, V9, V10, V11)

#define EACH2(OP) \
	EACH1(OP)                  \
	OP(12, V12, V13, V14, V15)

#define EACH4(OP) \
	EACH2(OP)                  \
	OP(16, V16, V17, V18, V19) \
	OP(20, V20, V21, V22, V23)

#define EACH6(OP) \
	EACH4(OP)                  \
	OP(24, V24, V25, V26, V27) \
	OP(28, V28, V29, V30, V31)

#define ZERO(n, a, b, c, d) \
	VEOR a.B16, a.B16, a.B16 \
	VEOR b.B16, b.B16, b.B16 \
	VEOR c.B16, c.B16, c.B16 \
	VEOR d.B16, d.B16, d.B16

#define READ(n, a, b, c, d) \
	VLD1 (R9), [a.S4, b.S4, c.S4, d.S4] \
	ADD  R1, R9

#define WRITE(n, a, b, c, d) \
	VST1 [a.S4, b.S4, c.S4, d.S4], (R9) \
	ADD  R1, R9

// FINISH adds the biases in V0 to V3 and writes NaNs as V4. V5 is for masks.
#define FINISH(n, a, b, c, d) \
	VFADD_4S(0, n+0, n+0)  \
	VFADD_4S(1, n+1, n+1)  \
	VFADD_4S(2, n+2, n+2)  \
	VFADD_4S(3, n+3, n+3)  \
	VFCMEQ_4S(n+0, n+0, 5) \
	VBIF_16B(5, 4, n+0)    \
	VFCMEQ_4S(n+1, n+1, 5) \
	VBIF_16B(5, 4, n+1)    \
	VFCMEQ_4S(n+2, n+2, 5) \
	VBIF_16B(5, 4, n+2)    \
	VFCMEQ_4S(n+3, n+3, 5) \
	VBIF_16B(5, 4, n+3)

// BEGIN and END are the parts of a kernel before and after its loop over four columns, which begins at the label loop.
#define BEGIN(EACH) \
	MOVD     out+0(FP), R0     \
	MOVD     stride+8(FP), R1  \
	MOVD     w+16(FP), R2      \
	MOVD     x+24(FP), R3      \
	MOVD     k+32(FP), R4      \
	MOVD     bias+40(FP), R5   \
	MOVD     resume+48(FP), R6 \
	MOVD     ahead+56(FP), R7  \
	MOVD     step+64(FP), R8   \
	CBNZ     R6, resumed       \
	EACH(ZERO)                 \
	B        loop              \
resumed:                       \
	MOVD     R0, R9            \
	EACH(READ)

#define END(EACH) \
	ADD    R8, R7                             \
	SUBS   $4, R4                             \
	BNE    loop                               \
	CBZ    R5, write                          \
	VLD1   (R5), [V0.S4, V1.S4, V2.S4, V3.S4] \
	MOVD   $0x7fc00000, R9                    \
	VDUP   R9, V4.S4                          \
	EACH(FINISH)                              \
write:                                        \
	MOVD   R0, R9                             \
	EACH(WRITE)                               \
	RET

// FMAn multiplies a vector of weights with column j of the rows of x.
#define FMA1(j, w, d) \
	VFMLA_4S(j, 0, w, d)

#define FMA2(j, w, d) \
	FMA1(j, w, d)          \
	VFMLA_4S(j, 1, w, d+4)

#define FMA4(j, w, d) \
	FMA2(j, w, d)           \
	VFMLA_4S(j, 2, w, d+8)  \
	VFMLA_4S(j, 3, w, d+12)

#define FMA6(j, w, d) \
	FMA4(j, w, d)           \
	VFMLA_4S(j, 4, w, d+16) \
	VFMLA_4S(j, 5, w, d+20)

// COLUMN multiplies a column of float32 weights, PAIR two columns of BF16 weights. They may use those registers of V0
// to V7 that hold no row of x, and V24 and above. V31 holds the mask of upper halves.
#define COLUMN(FMA, j) \
	FLDPQ.P 32(R2), (F4, F5) \
	FLDPQ.P 32(R2), (F6, F7) \
	FMA(j, 4, 8)             \
	FMA(j, 5, 9)             \
	FMA(j, 6, 10)            \
	FMA(j, 7, 11)

#define PAIR(FMA, j) \
	FLDPQ.P 32(R2), (F4, F5)        \
	FLDPQ.P 32(R2), (F6, F7)        \
	VSHL    $16, V4.S4, V24.S4      \
	VSHL    $16, V5.S4, V25.S4      \
	VSHL    $16, V6.S4, V26.S4      \
	VSHL    $16, V7.S4, V27.S4      \
	VAND    V31.B16, V4.B16, V4.B16 \
	VAND    V31.B16, V5.B16, V5.B16 \
	VAND    V31.B16, V6.B16, V6.B16 \
	VAND    V31.B16, V7.B16, V7.B16 \
	FMA(j, 24, 8)                   \
	FMA(j, 25, 9)                   \
	FMA(j, 26, 10)                  \
	FMA(j, 27, 11)                  \
	FMA(j+1, 4, 8)                  \
	FMA(j+1, 5, 9)                  \
	FMA(j+1, 6, 10)                 \
	FMA(j+1, 7, 11)

// COLUMN6 and PAIR6 may use V6 and V7 only.
#define COLUMN6(j) \
	FLDPQ.P 32(R2), (F6, F7) \
	FMA6(j, 6, 8)            \
	FMA6(j, 7, 9)            \
	FLDPQ.P 32(R2), (F6, F7) \
	FMA6(j, 6, 10)           \
	FMA6(j, 7, 11)

#define PAIR6(j) \
	HALVES6(j, 8)  \
	HALVES6(j, 9)  \
	HALVES6(j, 10) \
	HALVES6(j, 11)

#define HALVES6(j, d) \
	FMOVQ.P 16(R2), F6             \
	VSHL    $16, V6.S4, V7.S4      \
	FMA6(j, 7, d)                  \
	VMVNI_4S(7)                    \
	VAND    V7.B16, V6.B16, V7.B16 \
	FMA6(j+1, 7, d)
