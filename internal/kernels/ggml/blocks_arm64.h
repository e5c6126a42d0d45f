// Kernels of ggml's blocks, without their dot products. A file that includes this one defines
//
//	DOT(a, c, d)           d = dot products of 16 activations a and codes c, of up to 7 bits, in 4 lanes
//	DOT2(a, c, b, e, d)    the same of two pairs, of codes 0 to 63
//	DOT2W(a, c, b, e, d)   the same of codes of 8 bits
//
// R0 is RowArgs, R1 Dst, R2 the block, R3 the activations, R4 their scales, R5 their sums, R6 the blocks left, R7 the
// rows left, R8 the rows. V29 is f.

#define ENTER()                      \
	MOVD a+0(FP), R0             \
	MOVD RowArgs_Dst(R0), R1     \
	MOVD RowArgs_Data(R0), R8    \
	MOVD RowArgs_RowBytes(R0), R12 \
	MOVD RowArgs_Rows(R0), R7

#define START()                      \
	MOVD RowArgs_Acts(R0), R3    \
	MOVD RowArgs_Scales(R0), R4  \
	MOVD RowArgs_Blocks(R0), R6  \
	VMOVI_2D(29)

// CANONICAL replaces every NaN of f by the canonical NaN.
#define CANONICAL()             \
	MOVW $0x7fc00000, R14   \
	VDUP R14, V6.S4         \
	VFCMEQ_4S(29, 29, 7)    \
	VBIF_16B(7, 6, 29)

// SUPER is a kernel of one row at a time. BLOCK moves R2, R3, R4 and R5.
#define SUPER(CONSTS, BLOCK)       \
	ENTER()                    \
	CONSTS()                   \
row:                               \
	START()                    \
	MOVD RowArgs_Sums(R0), R5  \
	MOVD R8, R2                \
block:                             \
	BLOCK()                    \
	SUBS $1, R6                \
	BNE block                  \
	CANONICAL()                \
	FMOVS.P F29, 4(R1)         \
	ADD R12, R8                \
	SUBS $1, R7                \
	BNE row                    \
	RET

// LOW15 makes V31 the mask of a nibble, MASK a register the mask of other bits.
#define LOW15() VMOVI $15, V31.B16

#define ACTS()                                               \
	VLD1.P 64(R3), [V16.B16, V17.B16, V18.B16, V19.B16]

#define CODES()                                              \
	VLD1.P 64(R2), [V12.B16, V13.B16, V14.B16, V15.B16]

// FINISH adds the total V27 to f, with the scale in element 0 of V0. FINISH_MIN also subtracts V28, with element 1.
#define SCALE()                 \
	VSCVTF_4S(27, 27)       \
	VFCVTL_4S(0, 1)         \
	VLD1R.P 4(R4), [V2.S4]  \
	VFMUL_4S(2, 1, 1)       \
	VFMLA_4S(27, 1, 29)

#define FINISH()               \
	VADDP_4S(27, 27, 27)   \
	VADDP_4S(27, 27, 27)   \
	SCALE()

#define FINISH_MIN()                \
	VADDP_4S(28, 27, 27)        \
	VADDP_4S(27, 27, 27)        \
	SCALE()                     \
	VMOV V27.S[1], V5.S[0]      \
	VMOV V1.S[1], V6.S[0]       \
	VFMLS_4S(5, 6, 29)

// WIDEN makes V7-V10 int32 of the 16 bytes of V1.
#define WIDEN()          \
	VSXTL_8H(1, 2)   \
	VSXTL2_8H(1, 3)  \
	VSXTL_4S(2, 7)   \
	VSXTL2_4S(2, 8)  \
	VSXTL_4S(3, 9)   \
	VSXTL2_4S(3, 10)

// SUMS16 makes V28 the sums of the activations times V7-V10.
#define SUMS16()                                         \
	VLD1.P 64(R5), [V16.S4, V17.S4, V18.S4, V19.S4]  \
	VMUL_4S(16, 7, 28)                               \
	VMLA_4S(17, 8, 28)                               \
	VMLA_4S(18, 9, 28)                               \
	VMLA_4S(19, 10, 28)

// SIXBITS makes V7 and V8 the sub-scales of Q4_K and Q5_K, and V9 and V10 the sub-minima.
#define SIXBITS()                        \
	VLD1.P 16(R2), [V0.B16]          \
	VEXT $4, V0.B16, V0.B16, V1.B16  \
	VDUP V0.S[3], V4.S4              \
	VUSHR_16B(6, 1, 3)               \
	VAND_16B(30, 1, 2)               \
	VUSHR_16B(4, 4, 5)               \
	VTRN1 V5.S4, V4.S4, V4.S4        \
	VSLI_16B(4, 3, 4)                \
	VZIP1 V4.S4, V2.S4, V1.S4        \
	WIDEN()

// SUMS8 makes V28 the sums of the activations times V9 and V10.
#define SUMS8()                          \
	VLD1.P 32(R5), [V11.S4, V12.S4]  \
	VMUL_4S(11, 9, 28)               \
	VMLA_4S(12, 10, 28)

// FOURS makes V20-V23 the 64 nibbles of p and q.
#define FOURS(p, q)            \
	VAND_16B(31, p, 20)    \
	VAND_16B(31, q, 21)    \
	VUSHR_16B(4, p, 22)    \
	VUSHR_16B(4, q, 23)

// QUARTER adds 64 columns with the codes V20-V23 and sub-scales i and i+1 of s.
#define QUARTER(s, i)                 \
	ACTS()                        \
	DOT2(16, 20, 17, 21, 24)      \
	DOT2(18, 22, 19, 23, 25)      \
	VMLALANE_4S(i, s, 24, 27)     \
	VMLALANE_4S(i+1, s, 25, 27)

#define NIBBLES64(p, q, s, i)  \
	FOURS(p, q)            \
	QUARTER(s, i)

#define CONSTS_Q4K()          \
	LOW15()               \
	VMOVI $63, V30.B16

#define BLOCK_Q4K()               \
	SIXBITS()                 \
	SUMS8()                   \
	VMOVI_2D(27)              \
	CODES()                   \
	NIBBLES64(12, 13, 7, 0)   \
	NIBBLES64(14, 15, 7, 2)   \
	CODES()                   \
	NIBBLES64(12, 13, 8, 0)   \
	NIBBLES64(14, 15, 8, 2)   \
	FINISH_MIN()

// FIVES is FOURS with bits 0 and 1 of the bytes of V10 and V11 as bit 4 of the codes; the bits then move.
#define FIVES(p, q)                   \
	VUSHR_16B(4, p, 22)           \
	VUSHR_16B(4, q, 23)           \
	VSLI_16B(4, 10, p)            \
	VSLI_16B(4, 11, q)            \
	VUSHR_16B(1, 10, 10)          \
	VUSHR_16B(1, 11, 11)          \
	VSLI_16B(4, 10, 22)           \
	VSLI_16B(4, 11, 23)           \
	VUSHR_16B(1, 10, 10)          \
	VUSHR_16B(1, 11, 11)          \
	VAND_16B(31, p, 20)           \
	VAND_16B(31, q, 21)           \
	VAND_16B(31, 22, 22)          \
	VAND_16B(31, 23, 23)

#define FIVE64(p, q, s, i)  \
	FIVES(p, q)         \
	QUARTER(s, i)

#define CONSTS_Q5K()          \
	VMOVI $31, V31.B16    \
	VMOVI $63, V30.B16

#define BLOCK_Q5K()                        \
	SIXBITS()                          \
	SUMS8()                            \
	VLD1.P 32(R2), [V10.B16, V11.B16]  \
	VMOVI_2D(27)                       \
	CODES()                            \
	FIVE64(12, 13, 7, 0)               \
	FIVE64(14, 15, 7, 2)               \
	CODES()                            \
	FIVE64(12, 13, 8, 0)               \
	FIVE64(14, 15, 8, 2)               \
	FINISH_MIN()

// PAIR adds 32 columns with codes in p and q, sub-scales i and i+1 of s, and activations in a and b.
#define PAIR(a, p, b, q, s, i)        \
	DOT(a, p, 24)                 \
	DOT(b, q, 25)                 \
	VMLALANE_4S(i, s, 24, 27)     \
	VMLALANE_4S(i+1, s, 25, 27)

// LOW64 loads 128 codes of Q6_K and makes V12-V15 the first 64, HIGH64 makes V20-V23 the others. V0 and V1 hold high
// bits.
#define LOW64()                            \
	CODES()                            \
	VLD1.P 32(R10), [V0.B16, V1.B16]   \
	VUSHR_16B(4, 12, 20)               \
	VUSHR_16B(4, 13, 21)               \
	VUSHR_16B(4, 14, 22)               \
	VUSHR_16B(4, 15, 23)               \
	VUSHR_16B(2, 0, 4)                 \
	VUSHR_16B(2, 1, 5)                 \
	VSLI_16B(4, 0, 12)                 \
	VSLI_16B(4, 1, 13)                 \
	VSLI_16B(4, 4, 14)                 \
	VSLI_16B(4, 5, 15)                 \
	VAND_16B(30, 12, 12)               \
	VAND_16B(30, 13, 13)               \
	VAND_16B(30, 14, 14)               \
	VAND_16B(30, 15, 15)

#define HIGH64()                           \
	VUSHR_16B(4, 0, 4)                 \
	VUSHR_16B(4, 1, 5)                 \
	VUSHR_16B(6, 0, 0)                 \
	VUSHR_16B(6, 1, 1)                 \
	VSLI_16B(4, 4, 20)                 \
	VSLI_16B(4, 5, 21)                 \
	VSLI_16B(4, 0, 22)                 \
	VSLI_16B(4, 1, 23)                 \
	VAND_16B(30, 20, 20)               \
	VAND_16B(30, 21, 21)

// HALF_Q6K adds 128 columns with the sub-scales of s and t.
#define HALF_Q6K(s, t)              \
	LOW64()                     \
	ACTS()                      \
	PAIR(16, 12, 17, 13, s, 0)  \
	PAIR(18, 14, 19, 15, s, 2)  \
	ACTS()                      \
	HIGH64()                    \
	PAIR(16, 20, 17, 21, t, 0)  \
	PAIR(18, 22, 19, 23, t, 2)

#define CONSTS_Q6K() VMOVI $63, V30.B16

#define BLOCK_Q6K()                   \
	ADD $128, R2, R10             \
	ADD $192, R2, R11             \
	VLD1.P 16(R11), [V1.B16]      \
	WIDEN()                       \
	SUMS16()                      \
	VMOVI_2D(27)                  \
	HALF_Q6K(7, 8)                \
	HALF_Q6K(9, 10)               \
	VSHL_4S(5, 28, 28)            \
	VSUB V28.S4, V27.S4, V27.S4   \
	VLD1 (R11), V0.H[0]           \
	ADD $82, R2                   \
	FINISH()

// TWO32 makes V20 and V21 codes of 2 bits of p and q, k bits up.
#define TWO32(k, p, q)         \
	VUSHR_16B(k, p, 20)    \
	VUSHR_16B(k, q, 21)    \
	VAND_16B(31, 20, 20)   \
	VAND_16B(31, 21, 21)

#define HALF_Q2K(p, q, s, t)          \
	ACTS()                        \
	VAND_16B(31, p, 20)           \
	VAND_16B(31, q, 21)           \
	PAIR(16, 20, 17, 21, s, 0)    \
	TWO32(2, p, q)                \
	PAIR(18, 20, 19, 21, s, 2)    \
	ACTS()                        \
	TWO32(4, p, q)                \
	PAIR(16, 20, 17, 21, t, 0)    \
	VUSHR_16B(6, p, 20)           \
	VUSHR_16B(6, q, 21)           \
	PAIR(18, 20, 19, 21, t, 2)

#define CONSTS_Q2K()          \
	VMOVI $3, V31.B16     \
	VMOVI $15, V30.B16

#define BLOCK_Q2K()                   \
	VLD1.P 16(R2), [V0.B16]       \
	VUSHR_16B(4, 0, 1)            \
	WIDEN()                       \
	SUMS16()                      \
	VAND_16B(30, 0, 1)            \
	WIDEN()                       \
	VMOVI_2D(27)                  \
	CODES()                       \
	HALF_Q2K(12, 13, 7, 8)        \
	HALF_Q2K(14, 15, 9, 10)       \
	VLD1.P 4(R2), V0.S[0]         \
	FINISH_MIN()

// THIRD makes bit 0 of the bytes of V0 and V1 bit 2 of V20 and V21; the bits then move.
#define THIRD()                \
	VSLI_16B(2, 0, 20)     \
	VSLI_16B(2, 1, 21)    \
	VAND_16B(30, 20, 20)   \
	VAND_16B(30, 21, 21)   \
	VUSHR_16B(1, 0, 0)     \
	VUSHR_16B(1, 1, 1)

#define HALF_Q3K(p, q, s, t)          \
	ACTS()                        \
	VMOV_16B(p, 20)               \
	VMOV_16B(q, 21)               \
	THIRD()                       \
	PAIR(16, 20, 17, 21, s, 0)    \
	VUSHR_16B(2, p, 20)           \
	VUSHR_16B(2, q, 21)           \
	THIRD()                       \
	PAIR(18, 20, 19, 21, s, 2)    \
	ACTS()                        \
	VUSHR_16B(4, p, 20)           \
	VUSHR_16B(4, q, 21)           \
	THIRD()                       \
	PAIR(16, 20, 17, 21, t, 0)    \
	VUSHR_16B(6, p, 20)           \
	VUSHR_16B(6, q, 21)           \
	THIRD()                       \
	PAIR(18, 20, 19, 21, t, 2)

#define CONSTS_Q3K()          \
	VMOVI $7, V30.B16     \
	VMOVI $32, V26.B16

// SUBS_Q3K makes V7-V10 the sub-scales.
#define SUBS_Q3K()                          \
	VLD1.P 8(R2), [V1.B8]               \
	VLD1R.P 4(R2), [V4.S4]              \
	VUSHR_16B(4, 1, 5)                  \
	VZIP1 V5.D2, V1.D2, V1.D2           \
	VUSHR_16B(2, 4, 5)                  \
	VUSHR_16B(4, 4, 6)                  \
	VUSHR_16B(6, 4, 7)                  \
	VTRN1 V5.S4, V4.S4, V4.S4           \
	VTRN1 V7.S4, V6.S4, V6.S4           \
	VZIP1 V6.D2, V4.D2, V4.D2           \
	VSLI_16B(4, 4, 1)                   \
	VMOVI $63, V6.B16                   \
	VAND_16B(6, 1, 1)                   \
	VSUB V26.B16, V1.B16, V1.B16        \
	WIDEN()

#define BLOCK_Q3K()                         \
	MOVD R2, R10                        \
	ADD $32, R2                         \
	CODES()                             \
	SUBS_Q3K()                          \
	SUMS16()                            \
	VMOVI_2D(27)                        \
	VLD1 (R10), [V0.B16, V1.B16]        \
	HALF_Q3K(12, 13, 7, 8)              \
	HALF_Q3K(14, 15, 9, 10)             \
	VSHL_4S(2, 28, 28)                  \
	VSUB V28.S4, V27.S4, V27.S4         \
	VLD1.P 2(R2), V0.H[0]               \
	FINISH()

// LOOKUP32 makes V20 and V21 the numbers of the nibbles of p.
#define LOOKUP32(p)            \
	VAND_16B(31, p, 20)    \
	VUSHR_16B(4, p, 21)    \
	VTBL_16B(20, 30, 20)   \
	VTBL_16B(21, 30, 21)

#define IQ4_64(p, q, s, i)            \
	ACTS()                        \
	LOOKUP32(p)                   \
	DOT2W(16, 20, 17, 21, 24)     \
	LOOKUP32(q)                   \
	DOT2W(18, 20, 19, 21, 25)     \
	VMLALANE_4S(i, s, 24, 27)     \
	VMLALANE_4S(i+1, s, 25, 27)

// CONSTS_IQ4: V30 is the table of IQ4_NL, V26 holds the shifts of the high bits of IQ4_XS's sub-scales.
#define CONSTS_IQ4()                  \
	LOW15()                       \
	MOVD $·iq4Numbers(SB), R14    \
	VLD1 (R14), [V30.B16]         \
	MOVD $·iq4Shifts(SB), R14     \
	VLD1 (R14), [V26.B16]

// SUBS_IQ4XS makes V7 and V8 the sub-scales.
#define SUBS_IQ4XS()                  \
	VLD1.P 8(R2), [V0.B8]         \
	VDUP V0.S[1], V1.S4           \
	VUSHR_16B(4, 1, 2)            \
	VAND_16B(31, 1, 1)            \
	VZIP1 V2.B16, V1.B16, V1.B16  \
	VDUP V0.H[1], V2.H8           \
	VUSHL_8H(26, 2, 2)            \
	VMOVI $3, V3.B16              \
	VAND_16B(3, 2, 2)             \
	VUZP1 V2.B16, V2.B16, V2.B16  \
	VSLI_16B(4, 2, 1)             \
	VMOVI $32, V3.B16             \
	VSUB V3.B16, V1.B16, V1.B16   \
	VSXTL_8H(1, 2)                \
	VSXTL_4S(2, 7)                \
	VSXTL2_4S(2, 8)

#define BLOCK_IQ4XS()                 \
	SUBS_IQ4XS()                  \
	VMOVI_2D(27)                  \
	CODES()                       \
	IQ4_64(12, 13, 7, 0)          \
	IQ4_64(14, 15, 7, 2)          \
	CODES()                       \
	IQ4_64(12, 13, 8, 0)          \
	IQ4_64(14, 15, 8, 2)          \
	FINISH()

// SMALL is a kernel of four rows at a time, with blocks of 32 columns. ROW loads the block of a row, at register p,
// its scale to element i of V0, and sets d to the dot products. END adds the sums V20 to f.
#define SMALL(SUMS, CONSTS, ROW, END)  \
	ENTER()                        \
	CONSTS()                       \
rows:                                  \
	START()                        \
	MOVD SUMS(R0), R5              \
	MOVD R8, R2                    \
	ADD R12, R2, R9                \
	ADD R12, R9, R10               \
	ADD R12, R10, R11              \
	ADD R12, R11, R8               \
block:                                 \
	VLD1.P 32(R3), [V16.B16, V17.B16] \
	ROW(R2, 0, 20)                 \
	ROW(R9, 1, 21)                 \
	ROW(R10, 2, 22)                \
	ROW(R11, 3, 23)                \
	VADDP_4S(21, 20, 20)           \
	VADDP_4S(23, 22, 21)           \
	VADDP_4S(21, 20, 20)           \
	END()                          \
	SUBS $1, R6                    \
	BNE block                      \
	CANONICAL()                    \
	VST1.P [V29.S4], 16(R1)        \
	SUBS $4, R7                    \
	BNE rows                       \
	RET

// TERM adds V20 with scales d to f.
#define TERM(d)                 \
	VSCVTF_4S(20, 20)       \
	VFCVTL_4S(d, 1)         \
	VLD1R.P 4(R4), [V5.S4]  \
	VFMUL_4S(5, 1, 1)       \
	VFMLA_4S(20, 1, 29)

#define END_PLAIN() TERM(0)

#define END_OFFSET(k)                \
	VLD1R.P 4(R5), [V4.S4]       \
	VSHL_4S(k, 4, 4)             \
	VSUB V4.S4, V20.S4, V20.S4   \
	TERM(0)

#define END_8() END_OFFSET(3)

#define END_16() END_OFFSET(4)

#define END_MIN()                    \
	VUZP1 V0.H8, V0.H8, V2.H8    \
	VUZP2 V0.H8, V0.H8, V3.H8    \
	TERM(2)                      \
	VFCVTL_4S(3, 3)              \
	VLD1R.P 4(R5), [V5.S4]       \
	VFMLA_4S(5, 3, 29)

#define LOAD_D(p, i) VLD1.P 2(p), V0.H[i]

#define LOAD_DM(p, i) VLD1.P 4(p), V0.S[i]

#define NIBBLES32(p)            \
	VLD1.P 16(p), [V2.B16]  \
	VAND_16B(31, 2, 3)      \
	VUSHR_16B(4, 2, 2)

#define ROW_Q40(p, i, d)         \
	LOAD_D(p, i)             \
	NIBBLES32(p)             \
	DOT2(16, 3, 17, 2, d)

#define ROW_Q41(p, i, d)         \
	LOAD_DM(p, i)            \
	NIBBLES32(p)             \
	DOT2(16, 3, 17, 2, d)

// FIFTH loads the nibbles, and 32 bits that are bit 4 of each code.
#define FIFTH(p)                 \
	VLD1R.P 4(p), [V4.S4]    \
	NIBBLES32(p)             \
	VTBL_16B(26, 4, 5)       \
	VTBL_16B(27, 4, 4)       \
	VCMTST_16B(28, 5, 5)     \
	VCMTST_16B(28, 4, 4)     \
	VAND_16B(30, 5, 5)       \
	VAND_16B(30, 4, 4)       \
	VORR_16B(5, 3, 3)        \
	VORR_16B(4, 2, 2)

#define ROW_Q50(p, i, d)         \
	LOAD_D(p, i)             \
	FIFTH(p)                 \
	DOT2(16, 3, 17, 2, d)

#define ROW_Q51(p, i, d)         \
	LOAD_DM(p, i)            \
	FIFTH(p)                 \
	DOT2(16, 3, 17, 2, d)

// CONSTS_FIVE: V26 and V27 are the bytes of the 32 bits for each code, V28 the bits in them.
#define CONSTS_FIVE()                                        \
	LOW15()                                              \
	VMOVI $16, V30.B16                                   \
	MOVD $·fifthBits(SB), R14                            \
	VLD1 (R14), [V26.B16, V27.B16, V28.B16]

// NONE is for kernels without constants.
#define NONE()

// ROW_Q80 has codes of 8 bits.
#define ROW_Q80(p, i, d)                     \
	LOAD_D(p, i)                         \
	VLD1.P 32(p), [V2.B16, V3.B16]       \
	DOT2W(16, 2, 17, 3, d)

#define ROW_IQ4NL(p, i, d)         \
	LOAD_D(p, i)               \
	VLD1.P 16(p), [V2.B16]     \
	VAND_16B(31, 2, 3)         \
	VUSHR_16B(4, 2, 2)         \
	VTBL_16B(3, 30, 3)         \
	VTBL_16B(2, 30, 2)         \
	DOT2W(16, 3, 17, 2, d)
