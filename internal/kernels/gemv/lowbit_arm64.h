// The frame of all kernels of layouts with groups. A kernel is GROUPS with seven macros:
//
//	CONSTS()     sets the kernel's constants, once
//	START()      before a group: clears the accumulators, or starts them with a part of the group's sum of
//	             activations
//	BLOCK()      adds a block of columns of all rows to the accumulators, and moves R3 and R10 past it
//	REDUCE()     after a group: moves the integers of rows 0-3 to V0, of rows 4-7 to V1
//	EPILOGUE()   adds float32(t) * scale to V28 (rows 0-3) and V29 (rows 4-7), and moves R3 past the group's
//	             record and R11 past its sum
//	EPILOGUE1()  the same after a group of one block
//	TAIL()       after the last group: writes the outputs
//
// R5 is Groups, R6 Blocks, R7 LastBlocks, R11 Sums, R12 the groups left, R13 the blocks left. Kernels for panels of 4 rows leave V1 and V29 alone.
//
// Groups of one block have a loop of their own: 3 instructions less for each 256 products. GROUPS1 has another BLOCK in
// this loop, BLOCK1.
#define GROUPS(CONSTS, START, BLOCK, REDUCE, EPILOGUE, EPILOGUE1, TAIL) \
	GROUPS1(CONSTS, START, BLOCK, BLOCK, REDUCE, EPILOGUE, EPILOGUE1, TAIL)

#define GROUPS1(CONSTS, START, BLOCK, BLOCK1, REDUCE, EPILOGUE, EPILOGUE1, TAIL) \
	ENTER()                                                   \
	MOVD Args_Groups(R0), R5                                  \
	MOVD Args_Blocks(R0), R6                                  \
	MOVD Args_LastBlocks(R0), R7                              \
	CONSTS()                                                  \
panel:                                                            \
	MOVD R2, R3                                               \
	MOVD Args_Acts(R0), R10                                   \
	MOVD Args_Sums(R0), R11                                   \
	MOVD R5, R12                                              \
	VMOVI_2D(28)                                              \
	VMOVI_2D(29)                                              \
	CMP $1, R6                                                \
	BNE group                                                 \
single:                                                           \
	START()                                                   \
	BLOCK1()                                                  \
	REDUCE()                                                  \
	EPILOGUE1()                                               \
	SUBS $1, R12                                              \
	BNE single                                                \
	B tail                                                    \
group:                                                            \
	SUBS $1, R12                                              \
	CSEL EQ, R7, R6, R13                                      \
	START()                                                   \
block:                                                            \
	BLOCK()                                                   \
	SUBS $1, R13                                              \
	BNE block                                                 \
	REDUCE()                                                  \
	EPILOGUE()                                                \
	CBNZ R12, group                                           \
tail:                                                             \
	TAIL()                                                    \
	NEXT()

// LOWBIT is GROUPS for lowbit panels of 8 rows.
#define LOWBIT(CONSTS, START, BLOCK, REDUCE, EPILOGUE, EPILOGUE1) \
	GROUPS(CONSTS, START, BLOCK, REDUCE, EPILOGUE, EPILOGUE1, TAIL8)

// LOWBIT_SPLIT is LOWBIT for groups of odd multiples of 16 columns: every second group begins in the second half of a
// block. FIRST() and SECOND() are BLOCK() for one half of the columns. The block is read twice, since the record of the
// group that ends in it follows it: R15 is its place, R16 the place behind the record.
#define LOWBIT_SPLIT(CONSTS, START, BLOCK, FIRST, SECOND, REDUCE, EPILOGUE) \
	ENTER()                                                             \
	MOVD Args_Groups(R0), R5                                            \
	MOVD Args_Blocks(R0), R6                                            \
	MOVD Args_LastBlocks(R0), R7                                        \
	CONSTS()                                                            \
panel:                                                                      \
	MOVD R2, R3                                                         \
	MOVD Args_Acts(R0), R10                                             \
	MOVD Args_Sums(R0), R11                                             \
	MOVD R5, R12                                                        \
	VMOVI_2D(28)                                                        \
	VMOVI_2D(29)                                                        \
group:                                                                      \
	SUBS $1, R12                                                        \
	CSEL EQ, R7, R6, R13                                                \
	START()                                                             \
	CBZ R13, first                                                      \
block:                                                                      \
	BLOCK()                                                             \
	SUBS $1, R13                                                        \
	BNE block                                                           \
	CBZ R12, sum                                                        \
first:                                                                      \
	MOVD R3, R15                                                        \
	FIRST()                                                             \
	REDUCE()                                                            \
	EPILOGUE()                                                          \
	MOVD R3, R16                                                        \
	MOVD R15, R3                                                        \
	SUB $64, R10                                                        \
	SUBS $1, R12                                                        \
	CSEL EQ, R7, R6, R13                                                \
	START()                                                             \
	SECOND()                                                            \
	MOVD R16, R3                                                        \
	CBZ R13, sum                                                        \
rest:                                                                       \
	BLOCK()                                                             \
	SUBS $1, R13                                                        \
	BNE rest                                                            \
sum:                                                                        \
	REDUCE()                                                            \
	EPILOGUE()                                                          \
	CBNZ R12, group                                                     \
	TAIL8()                                                             \
	NEXT()

// TAIL8 and TAIL4 end a lowbit panel of 8 or 4 rows: float32 sums and biases follow the last group.
#define TAIL8()                                 \
	VLD1 (R3), [V0.S4, V1.S4, V2.S4, V3.S4] \
	FMOVS LowbitArgs_NegZero(R0), F4              \
	FMOVS LowbitArgs_Rec(R0), F5                  \
	VFMLA_4S_0(4, 0, 28)                    \
	VFMLA_4S_0(4, 1, 29)                    \
	VFMUL_4S_0(5, 28, 28)                   \
	VFMUL_4S_0(5, 29, 29)                   \
	VFADD_4S(2, 28, 28)                     \
	VFADD_4S(3, 29, 29)                     \
	STORE8()

#define TAIL4()                    \
	VLD1 (R3), [V0.S4, V1.S4]  \
	FMOVS LowbitArgs_NegZero(R0), F4 \
	FMOVS LowbitArgs_Rec(R0), F5     \
	VFMLA_4S_0(4, 0, 28)       \
	VFMUL_4S_0(5, 28, 28)      \
	VFADD_4S(1, 28, 28)        \
	STORE4()

// STORE8 and STORE4 write the outputs in V28 and V29.
#define STORE8()              \
	CANONICAL(28)         \
	CANONICAL(29)         \
	VST1.P [V28.S4, V29.S4], 32(R1)

#define STORE4()      \
	CANONICAL(28) \
	VST1.P [V28.S4], 16(R1)

// SCALES reads the 8 BF16 scales of a group to V2 and V3.
#define SCALES()               \
	FMOVQ.P 16(R3), F4     \
	VSHLL_4S(4, 2)         \
	VSHLL2_4S(4, 3)

// ADD_SCALED and SUB_SCALED end the epilogues: V0 and V1 hold t, or -t, as float32.
#define ADD_SCALED()       \
	VFMLA_4S(2, 0, 28) \
	VFMLA_4S(3, 1, 29)

#define SUB_SCALED()       \
	VFMLS_4S(2, 0, 28) \
	VFMLS_4S(3, 1, 29)

#define TO_FLOAT()      \
	VSCVTF_4S(0, 0) \
	VSCVTF_4S(1, 1)

// The integers are t in EPILOGUE, 16*t in EPILOGUE16, and -t in EPILOGUE_NEGATED.
#define EPILOGUE() \
	SCALES()   \
	TO_FLOAT() \
	ADD_SCALED()

#define EPILOGUE16() \
	SCALES()     \
	SCALED16()

#define SCALED16()           \
	VSCVTF_4S_F(4, 0, 0) \
	VSCVTF_4S_F(4, 1, 1) \
	ADD_SCALED()

#define EPILOGUE_NEGATED() \
	SCALES()           \
	TO_FLOAT()         \
	SUB_SCALED()

// ZEROS reads the 8 zero points of a group to V7 (8H), and its sum to V6. POINTS widens them to V4 and V5.
#define ZEROS()                 \
	VLD1.P 8(R3), [V7.B8]   \
	VLD1R.P 4(R11), [V6.S4] \
	VSXTL_8H(7, 7)

#define POINTS()       \
	VSXTL_4S(7, 4) \
	VSXTL2_4S(7, 5)

// SUB_POINTS and ADD_POINTS subtract and add the zero points. SUB_POINTS1 and ADD_POINTS1 are for groups of one block,
// whose sums of activations have 13 bits.
#define SUB_POINTS()     \
	POINTS()         \
	VMLS_4S(6, 4, 0) \
	VMLS_4S(6, 5, 1)

#define SUB_POINTS1()        \
	VSMLSL_4S_0(6, 7, 0) \
	VSMLSL2_4S_0(6, 7, 1)

#define ADD_POINTS()     \
	POINTS()         \
	VMLA_4S(6, 4, 0) \
	VMLA_4S(6, 5, 1)

#define ADD_POINTS1()        \
	VSMLAL_4S_0(6, 7, 0) \
	VSMLAL2_4S_0(6, 7, 1)

// EPILOGUE_ZEROS is for signed codes, with Sums of the factor 1. EPILOGUE1_ZEROS is for groups of one block.
#define EPILOGUE_ZEROS() \
	SCALES()         \
	ZEROS()          \
	SUB_POINTS()     \
	TO_FLOAT()       \
	ADD_SCALED()

#define EPILOGUE1_ZEROS() \
	SCALES()          \
	ZEROS()           \
	SUB_POINTS1()     \
	TO_FLOAT()        \
	ADD_SCALED()

// EPILOGUE_ZEROS16 is for 16 times the integers; Sums have the factor -1. 16 times a zero point times the
// sum of a long group would overflow.
#define EPILOGUE_ZEROS16() \
	SCALES()           \
	ZEROS_SCALED16()

#define ZEROS_SCALED16()   \
	ZEROS()            \
	POINTS()           \
	VMUL_4S(6, 4, 4)   \
	VMUL_4S(6, 5, 5)   \
	VSSRA_4S(4, 0, 4)  \
	VSSRA_4S(4, 1, 5)  \
	VSCVTF_4S(4, 0)    \
	VSCVTF_4S(5, 1)    \
	ADD_SCALED()

#define EPILOGUE1_ZEROS16() \
	SCALES()            \
	ZEROS1_SCALED16()

#define ZEROS1_SCALED16()       \
	VLD1.P 8(R3), [V7.B8]   \
	VLD1R.P 4(R11), [V6.S4] \
	VSSHLL_8H(4, 7, 7)      \
	VSMLAL_4S_0(6, 7, 0)    \
	VSMLAL2_4S_0(6, 7, 1)   \
	VSCVTF_4S_F(4, 0, 0)    \
	VSCVTF_4S_F(4, 1, 1)    \
	ADD_SCALED()

// ZEROS_OFFSET reads zero points for codes stored as q + offset: V31 (8H) holds the offset, which it adds to them.
#define ZEROS_OFFSET() \
	ZEROS()        \
	VADD V31.H8, V7.H8, V7.H8

// EPILOGUE_ZEROS_OFFSET is for codes stored as q + offset.
#define EPILOGUE_ZEROS_OFFSET() \
	SCALES()                \
	ZEROS_OFFSET()          \
	SUB_POINTS()            \
	TO_FLOAT()              \
	ADD_SCALED()

#define EPILOGUE1_ZEROS_OFFSET() \
	SCALES()                 \
	ZEROS_OFFSET()           \
	SUB_POINTS1()            \
	TO_FLOAT()               \
	ADD_SCALED()

// EPILOGUE_ZEROS_NEGATED is the same for negated integers.
#define EPILOGUE_ZEROS_NEGATED() \
	SCALES()                 \
	ZEROS_OFFSET()           \
	ADD_POINTS()             \
	TO_FLOAT()               \
	SUB_SCALED()

#define EPILOGUE1_ZEROS_NEGATED() \
	SCALES()                  \
	ZEROS_OFFSET()            \
	ADD_POINTS1()             \
	TO_FLOAT()                \
	SUB_SCALED()

// Fractional zero points count in 2^-k, k = 8 - bits. The integers are moved to the same unit: SHIFTED shifts them to
// the left by k, which products that are 2^k times too large do not need. The offset of every width becomes 128 (V31,
// 8H).
#define SHIFTED(k)            \
	VSHL $k, V0.S4, V0.S4 \
	VSHL $k, V1.S4, V1.S4

#define TO_FLOAT_FRACTIONS(k) \
	VSCVTF_4S_F(k, 0, 0)  \
	VSCVTF_4S_F(k, 1, 1)

// FRACTIONS128 makes V31 the offset of fractions.
#define FRACTIONS128()     \
	VMOVI $128, V31.B16 \
	VUSHR $8, V31.H8, V31.H8

// FRACTIONS is the epilogue of signed codes, 2^k times too large. ZERO_POINTS is SUB_POINTS or SUB_POINTS1.
#define FRACTIONS(k, ZERO_POINTS) \
	SCALES()                  \
	ZEROS()                   \
	ZERO_POINTS()             \
	TO_FLOAT_FRACTIONS(k)     \
	ADD_SCALED()

// FRACTIONS_OFFSET is the epilogue of codes stored as q + offset: with SUB_POINTS or SUB_POINTS1 and ADD_SCALED, or for
// negated integers with ADD_POINTS or ADD_POINTS1 and SUB_SCALED.
#define FRACTIONS_OFFSET(k, ZERO_POINTS, SCALED) \
	SHIFTED(k)                               \
	SCALES()                                 \
	ZEROS_OFFSET()                           \
	ZERO_POINTS()                            \
	TO_FLOAT_FRACTIONS(k)                    \
	SCALED()

// EPILOGUE_HALF is for the half-step grid: with stored codes u, 2*(q + 1/2) is 2*u - (2^bits - 1), and Sums
// have the factor 1 - 2^bits. V31 (4S) is 2.
#define EPILOGUE_HALF()         \
	SCALES()                \
	VLD1R.P 4(R11), [V4.S4] \
	VMOV V4.B16, V5.B16     \
	VMLA_4S(31, 0, 4)       \
	VMLA_4S(31, 1, 5)       \
	VSCVTF_4S_F(1, 4, 0)    \
	VSCVTF_4S_F(1, 5, 1)    \
	ADD_SCALED()

// EPILOGUE_HALF_NEGATED is the same for negated integers.
#define EPILOGUE_HALF_NEGATED() \
	SCALES()                \
	VLD1R.P 4(R11), [V4.S4] \
	VMOV V4.B16, V5.B16     \
	VMLS_4S(31, 0, 4)       \
	VMLS_4S(31, 1, 5)       \
	VSCVTF_4S_F(1, 4, 0)    \
	VSCVTF_4S_F(1, 5, 1)    \
	ADD_SCALED()
