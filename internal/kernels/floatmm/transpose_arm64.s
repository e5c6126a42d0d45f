//go:build !purego

#include "textflag.h"

// TRANSPOSE4 turns four rows of four words into four columns, a to d.
#define TRANSPOSE4(r0, r1, r2, r3, a, b, c, d) \
	VTRN1 r1.S4, r0.S4, V16.S4 \
	VTRN2 r1.S4, r0.S4, V17.S4 \
	VTRN1 r3.S4, r2.S4, V18.S4 \
	VTRN2 r3.S4, r2.S4, V19.S4 \
	VZIP1 V18.D2, V16.D2, a.D2 \
	VZIP1 V19.D2, V17.D2, b.D2 \
	VZIP2 V18.D2, V16.D2, c.D2 \
	VZIP2 V19.D2, V17.D2, d.D2

// func transposeNEON(dst *uint32, column int, src *byte, stride, n int)
TEXT ·transposeNEON(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R0
	MOVD column+8(FP), R1
	MOVD src+16(FP), R2
	MOVD stride+24(FP), R3
	MOVD n+32(FP), R4
	ADD  R3, R2, R5
	ADD  R3, R5, R6
	ADD  R3, R6, R7
	ADD  R3, R7, R8
	ADD  R3, R8, R9
	ADD  R3, R9, R10
	ADD  R3, R10, R11

loop:
	FMOVQ.P 16(R2), F0
	FMOVQ.P 16(R5), F1
	FMOVQ.P 16(R6), F2
	FMOVQ.P 16(R7), F3
	FMOVQ.P 16(R8), F4
	FMOVQ.P 16(R9), F5
	FMOVQ.P 16(R10), F6
	FMOVQ.P 16(R11), F7
	TRANSPOSE4(V0, V1, V2, V3, V20, V22, V24, V26)
	TRANSPOSE4(V4, V5, V6, V7, V21, V23, V25, V27)
	FSTPQ   (F20, F21), (R0)
	ADD     R1, R0
	FSTPQ   (F22, F23), (R0)
	ADD     R1, R0
	FSTPQ   (F24, F25), (R0)
	ADD     R1, R0
	FSTPQ   (F26, F27), (R0)
	ADD     R1, R0
	SUBS    $4, R4
	BNE     loop
	RET
