// Kernels of ggml's blocks, without their dot products. A file that includes this one defines
//
//	DOT(a, c, d)           d = dot products of 16 activations a and codes c, of up to 7 bits, in 4 lanes
//	DOT2(a, c, b, e, d)    the same of two pairs, of codes 0 to 63
//	DOT2W(a, c, b, e, d)   the same of codes of 8 bits
//	ADD2, ADD2W            DOT2 and DOT2W for the rows of SMALL: they may add to d
//	CLEAR_ROWS()           the state of ADD2 and ROW_SUMS before the first block
//	ROW_SUMS(now, last)    V19 = the sums of each of V20-V23 of a block; registers now and last alternate
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
// its scale to element i of V0, and makes d the dot products. END adds the sums V19 to f. The numbers of activations
// of four blocks are loaded together: element i of V6 is a scale, of V7 a sum.
#define SMALL(SUMS, CONSTS, ROW, END) \
	ENTER() \
	CONSTS() \
rows: \
	START4(SUMS) \
	CLEAR_ROWS() \
	SUBS $4, R6 \
	BLT rest \
four: \
	VLD1.P 16(R4), [V6.S4] \
	VLD1.P 16(R5), [V7.S4] \
	SMALL_BLOCK(ROW, END, 0, 18, 25) \
	SMALL_BLOCK(ROW, END, 1, 25, 18) \
	SMALL_BLOCK(ROW, END, 2, 18, 25) \
	SMALL_BLOCK(ROW, END, 3, 25, 18) \
	SUBS $4, R6 \
	BGE four \
rest: \
	ADDS $4, R6 \
	BEQ done \
block: \
	VLD1R.P 4(R4), [V6.S4] \
	VLD1R.P 4(R5), [V7.S4] \
	SMALL_BLOCK(ROW, END, 0, 18, 25) \
	VMOV_16B(18, 25) \
	SUBS $1, R6 \
	BNE block \
done: \
	END4() \
	BNE rows \
	RET

#define SMALL_BLOCK(ROW, END, k, now, last) \
	VLD1.P 32(R3), [V16.B16, V17.B16] \
	ROW(R2, 0, 20) \
	ROW(R9, 1, 21) \
	ROW(R10, 2, 22) \
	ROW(R11, 3, 23) \
	ROW_SUMS(now, last) \
	END(k)

// SUMS4 adds up each of V20-V23.
#define SUMS4() \
	VADDP_4S(21, 20, 20) \
	VADDP_4S(23, 22, 21) \
	VADDP_4S(21, 20, 20)

// ROWS4 is a kernel of four rows at a time.
#define ROWS4(SUMS, CONSTS, BLOCK) \
	ENTER() \
	CONSTS() \
rows: \
	START4(SUMS) \
block: \
	BLOCK() \
	SUBS $1, R6 \
	BNE block \
	END4() \
	BNE rows \
	RET

#define START4(SUMS) \
	START() \
	MOVD SUMS(R0), R5 \
	MOVD R8, R2 \
	ADD R12, R2, R9 \
	ADD R12, R9, R10 \
	ADD R12, R10, R11 \
	ADD R12, R11, R8

#define END4() \
	CANONICAL() \
	VST1.P [V29.S4], 16(R1) \
	SUBS $4, R7

// TERM adds V19 with scales d to f, FLOAT_TERM with the scales V1.
#define TERM(d, k) \
	VFCVTL_4S(d, 1) \
	FLOAT_TERM(k)

#define FLOAT_TERM(k) \
	VSCVTF_4S(19, 19) \
	VFMULLANE_4S(k, 6, 1, 1) \
	VFMLA_4S(19, 1, 29)

#define END_PLAIN(k) TERM(0, k)

// END_OFFSET subtracts the excess V24 of codes.
#define END_OFFSET(k)                \
	VMLSLANE_4S(k, 7, 24, 19)    \
	TERM(0, k)

#define END_MIN(k)                   \
	VUZP1 V0.H8, V0.H8, V2.H8    \
	VUZP2 V0.H8, V0.H8, V3.H8    \
	TERM(2, k)                   \
	VFCVTL_4S(3, 3)              \
	VFMLALANE_4S(k, 7, 3, 29)

#define LOAD_D(p, i) VLD1.P 2(p), V0.H[i]

#define LOAD_DM(p, i) VLD1.P 4(p), V0.S[i]

#define NIBBLES32(p)            \
	VLD1.P 16(p), [V2.B16]  \
	VAND_16B(31, 2, 3)      \
	VUSHR_16B(4, 2, 2)

#define CONSTS_Q40()             \
	LOW15()                  \
	MOVD $8, R14             \
	VDUP R14, V24.S4

#define ROW_Q40(p, i, d)         \
	LOAD_D(p, i)             \
	NIBBLES32(p)             \
	ADD2(16, 3, 17, 2, d)

#define ROW_Q41(p, i, d)         \
	LOAD_DM(p, i)            \
	NIBBLES32(p)             \
	ADD2(16, 3, 17, 2, d)

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
	ADD2(16, 3, 17, 2, d)

#define ROW_Q51(p, i, d)         \
	LOAD_DM(p, i)            \
	FIFTH(p)                 \
	ADD2(16, 3, 17, 2, d)

// CONSTS_FIVE: V26 and V27 are the bytes of the 32 bits for each code, V28 the bits in them.
#define CONSTS_FIVE()                                        \
	LOW15()                                              \
	VMOVI $16, V30.B16                                   \
	MOVD $·fifthBits(SB), R14                            \
	VLD1 (R14), [V26.B16, V27.B16, V28.B16]

#define CONSTS_Q50()             \
	CONSTS_FIVE()            \
	MOVD $16, R14            \
	VDUP R14, V24.S4

// NONE is for kernels without constants.
#define NONE()

// ROW_Q80 has codes of 8 bits.
#define ROW_Q80(p, i, d)                     \
	LOAD_D(p, i)                         \
	VLD1.P 32(p), [V2.B16, V3.B16]       \
	ADD2W(16, 2, 17, 3, d)

#define ROW_IQ4NL(p, i, d)         \
	LOAD_D(p, i)               \
	VLD1.P 16(p), [V2.B16]     \
	VAND_16B(31, 2, 3)         \
	VUSHR_16B(4, 2, 2)         \
	VTBL_16B(3, 30, 3)         \
	VTBL_16B(2, 30, 2)         \
	ADD2W(16, 3, 17, 2, d)

// MXFP4 and NVFP4: V30 is the table of E2M1, doubled.
// CONSTS_MXFP4: V26-V28 are the numbers of POWERS.
#define CONSTS_MXFP4() \
	LOW15() \
	MOVD $·fp4Numbers(SB), R14 \
	VLD1 (R14), [V30.B16] \
	MOVD $2, R14 \
	VDUP R14, V26.S4 \
	MOVD $0x00200000, R14 \
	VDUP R14, V27.S4 \
	MOVD $0x00800000, R14 \
	VDUP R14, V28.S4

// POWERS makes V1 the halved scales of the exponents V0: unpackMXFP4 of formats/gguf. The two smallest are subnormal.
#define POWERS() \
	VUMIN_4S(26, 0, 2) \
	VUSHL_4S(2, 27, 2) \
	VSHL_4S(23, 0, 1) \
	VSUB V28.S4, V1.S4, V1.S4 \
	VSMAX_4S(2, 1, 1)

#define ROW_MXFP4(p, i, d) \
	MOVBU.P 1(p), R14 \
	VMOV R14, V0.S[i] \
	NIBBLES32(p) \
	VTBL_16B(3, 30, 3) \
	VTBL_16B(2, 30, 2) \
	ADD2(16, 3, 17, 2, d)

#define END_MXFP4(k) \
	POWERS() \
	FLOAT_TERM(k)

// CONSTS_NVFP4: V26-V28 are the numbers of E4M3.
#define CONSTS_NVFP4() \
	LOW15() \
	MOVD $·fp4Numbers(SB), R14 \
	VLD1 (R14), [V30.B16] \
	MOVD $0x7f, R14 \
	VDUP R14, V26.S4 \
	MOVD $0x7b000000, R14 \
	VDUP R14, V27.S4 \
	MOVD $0xff, R14 \
	VDUP R14, V28.S4

// E4M3 makes V1 halved scales of bytes: nvScale of formats/gguf. The bits are a float32 whose exponent is 120 too small.
#define E4M3() \
	VCMEQ_4S(26, 1, 2) \
	VAND_16B(26, 1, 1) \
	VBIC_16B(2, 1, 1) \
	VSHL_4S(20, 1, 1) \
	VFMUL_4S(27, 1, 1)

// FP4_16 makes V2 the 16 codes of a group of NVFP4: low nibbles, then high nibbles.
#define FP4_16(p) \
	VLD1.P 8(p), [V2.B8] \
	VUSHR_16B(4, 2, 3) \
	VZIP1 V3.D2, V2.D2, V2.D2 \
	VAND_16B(31, 2, 2) \
	VTBL_16B(2, 30, 2)

#define ROW_NVFP4(a, p, d) \
	FP4_16(p) \
	DOT(a, 2, d)

// GROUP_NVFP4 adds a group with the activations a, scales of the activations V6, and the scales of the bytes V1.
#define GROUP_NVFP4(a) \
	E4M3() \
	ROW_NVFP4(a, R2, 20) \
	ROW_NVFP4(a, R9, 21) \
	ROW_NVFP4(a, R10, 22) \
	ROW_NVFP4(a, R11, 23) \
	SUMS4() \
	VSCVTF_4S(20, 20) \
	VFMUL_4S(6, 1, 1) \
	VFMLA_4S(20, 1, 29)

#define BLOCK_NVFP4() \
	ACTS() \
	LOAD_DM(R2, 0) \
	LOAD_DM(R9, 1) \
	LOAD_DM(R10, 2) \
	LOAD_DM(R11, 3) \
	VLD1R.P 4(R4), [V6.S4] \
	VAND_16B(28, 0, 1) \
	GROUP_NVFP4(16) \
	VUSHR_4S(8, 0, 1) \
	VAND_16B(28, 1, 1) \
	GROUP_NVFP4(17) \
	VLD1R.P 4(R4), [V6.S4] \
	VUSHR_4S(16, 0, 1) \
	VAND_16B(28, 1, 1) \
	GROUP_NVFP4(18) \
	VUSHR_4S(24, 0, 1) \
	GROUP_NVFP4(19)

// Ternary types have a scale and a sum of activations for a block. ADD32 adds 32 columns.
#define ADD32(a, b) \
	DOT2(a, 20, b, 21, 24) \
	VADD V24.S4, V27.S4, V27.S4

// FINISH_TQ subtracts the sum of activations: codes are 1 larger than digits.
#define FINISH_TQ() \
	VMOVI_2D(4) \
	VLD1.P 4(R5), V4.S[0] \
	VSUB V4.S4, V27.S4, V27.S4 \
	VLD1.P 2(R2), V0.H[0] \
	FINISH()

#define CONSTS_TQ2() \
	VMOVI $3, V31.B16

#define HALF_TQ2(p, q) \
	ACTS() \
	VAND_16B(31, p, 20) \
	VAND_16B(31, q, 21) \
	ADD32(16, 17) \
	TWO32(2, p, q) \
	ADD32(18, 19) \
	ACTS() \
	TWO32(4, p, q) \
	ADD32(16, 17) \
	VUSHR_16B(6, p, 20) \
	VUSHR_16B(6, q, 21) \
	ADD32(18, 19)

#define BLOCK_TQ2() \
	VMOVI_2D(27) \
	CODES() \
	HALF_TQ2(12, 13) \
	HALF_TQ2(14, 15) \
	FINISH_TQ()

#define CONSTS_TQ1() \
	VMOVI $86, V30.B16 \
	VMOVI $171, V31.B16

// TERNARY makes d the integer part of 3 times the fractions in bytes: 1 from 86/256 on, 2 from 171/256. THRICE
// multiplies bytes by 3.
#define TERNARY(s, d) \
	VCMHS_16B(30, s, d) \
	VCMHS_16B(31, s, 5) \
	VADD_16B(5, d, d) \
	VNEG_16B(d, d)

#define THRICE(r) \
	VADD_16B(r, r, 5) \
	VADD_16B(5, r, r)

// DIGITS1 and DIGITS2 make V20 and V21 the next digits of 32 bytes, or the next two of 16 bytes.
#define DIGITS1() \
	TERNARY(12, 20) \
	TERNARY(13, 21) \
	THRICE(12) \
	THRICE(13)

#define DIGITS2() \
	TERNARY(14, 20) \
	THRICE(14) \
	TERNARY(14, 21) \
	THRICE(14)

// LAST_DIGITS makes V20 the last digit of 16 bytes, and V21 the digits of the 4 bytes repeated in V15.
#define LAST_DIGITS() \
	TERNARY(14, 20) \
	VMOV_16B(15, 2) \
	THRICE(2) \
	VZIP1 V2.S4, V15.S4, V15.S4 \
	VMOV_16B(15, 2) \
	THRICE(2) \
	THRICE(2) \
	VZIP1 V2.D2, V15.D2, V15.D2 \
	TERNARY(15, 21)

// DIGITS loads a block; EACH follows 8 times.
#define DIGITS(EACH) \
	VLD1.P 32(R2), [V12.B16, V13.B16] \
	VLD1.P 16(R2), [V14.B16] \
	VLD1R.P 4(R2), [V15.S4] \
	DIGITS1() \
	EACH() \
	DIGITS1() \
	EACH() \
	DIGITS1() \
	EACH() \
	DIGITS1() \
	EACH() \
	DIGITS1() \
	EACH() \
	DIGITS2() \
	EACH() \
	DIGITS2() \
	EACH() \
	LAST_DIGITS() \
	EACH()

#define ADD_ACTS() \
	VLD1.P 32(R3), [V16.B16, V17.B16] \
	ADD32(16, 17)

#define BLOCK_TQ1() \
	VMOVI_2D(27) \
	DIGITS(ADD_ACTS) \
	FINISH_TQ()
