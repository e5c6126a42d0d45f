// Shared by the kernels of qsi4cxp and qsi8cxp, which have one group a row. A kernel is CHANNEL with five macros:
//
//	CONSTS()  constants of the kernel, once
//	START()   clears the accumulators
//	TWO()     adds two blocks of 32 columns to the accumulators, and moves R3 and R10 past them
//	BLOCK()   adds one block
//	FINISH()  reduces the accumulators to V0 (and V1), and writes the outputs
//
// R7 is LastBlocks, because the only group is the last. R13 is the number of blocks left, less 2.
#define CHANNEL(CONSTS, START, TWO, BLOCK, FINISH) \
	ENTER()                                    \
	MOVD Args_LastBlocks(R0), R7               \
	CONSTS()                                   \
panel:                                             \
	MOVD R2, R3                                \
	MOVD Args_Acts(R0), R10                    \
	START()                                    \
	SUBS $2, R7, R13                           \
	BLT last                                   \
blocks:                                            \
	TWO()                                      \
	SUBS $2, R13                               \
	BGE blocks                                 \
last:                                              \
	TBZ $0, R13, finish                        \
	BLOCK()                                    \
finish:                                            \
	FINISH()                                   \
	NEXT()

// SCALED turns the integers d into outputs: float32(d + s*NegZeroInt) * float32(scale*Rec) + bias, with row sums s,
// scales c and biases b. V4 is NegZeroInt, V5 Rec.
#define SCALED(d, s, c, b)  \
	VMLA_4S_0(4, s, d)  \
	VSCVTF_4S(d, d)     \
	VFMUL_4S_0(5, c, c) \
	VFMUL_4S(c, d, d)   \
	VFADD_4S(b, d, d)   \
	CANONICAL(d)

#define FACTORS()                     \
	FMOVS ChannelArgs_NegZeroInt(R0), F4 \
	FMOVS ChannelArgs_Rec(R0), F5

// WRITE8 writes the outputs of a panel of 8 rows, whose integers are in V0 and V1. WRITE4: 4 rows, V0.
#define WRITE8()                                      \
	VLD1.P 64(R3), [V8.S4, V9.S4, V10.S4, V11.S4] \
	VLD1 (R3), [V12.S4, V13.S4]                   \
	FACTORS()                                     \
	SCALED(0, 8, 10, 12)                          \
	SCALED(1, 9, 11, 13)                          \
	VST1.P [V0.S4, V1.S4], 32(R1)

#define WRITE4()                          \
	VLD1 (R3), [V8.S4, V9.S4, V10.S4] \
	FACTORS()                         \
	SCALED(0, 8, 9, 10)               \
	VST1.P [V0.S4], 16(R1)
