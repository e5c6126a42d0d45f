// Shared by Group for 8 and for 4 rows of activations. V0-V7 are the sums of a group, V8-V15 the float32 sums of all
// groups. V31 is MAGIC in groups that are short enough for it.

// MAGIC is the bits of 1.5 * 2^23. MAGIC plus an integer n, |n| <= 2^22, is the bits of 1.5 * 2^23 + n, so a sum that
// starts at MAGIC becomes float32 by a subtraction, which is exact. On Neoverse V and N cores SCVTF runs on two pipes
// only, a subtraction on any.
#define MAGIC 0x4b400000

// MAGIC_16 is the bits of 1.5 * 2^27, whose last bit is 16: the subtraction gives 16n.
#define MAGIC_16 0x4d400000

#define NAN 0x7fc00000

// SAME gives the four elements of r the same bits.
#define SAME(bits, r) \
	MOVD $bits, R13 \
	VDUP R13, r.S4

#define START_AT_MAGIC \
	VMOV V31.B16, V0.B16 \
	VMOV V31.B16, V1.B16 \
	VMOV V31.B16, V2.B16 \
	VMOV V31.B16, V3.B16 \
	VMOV V31.B16, V4.B16 \
	VMOV V31.B16, V5.B16 \
	VMOV V31.B16, V6.B16 \
	VMOV V31.B16, V7.B16

#define MAGIC_TO_FLOAT \
	VFSUB_4S(31, 0, 0) \
	VFSUB_4S(31, 1, 1) \
	VFSUB_4S(31, 2, 2) \
	VFSUB_4S(31, 3, 3) \
	VFSUB_4S(31, 4, 4) \
	VFSUB_4S(31, 5, 5) \
	VFSUB_4S(31, 6, 6) \
	VFSUB_4S(31, 7, 7)

#define TO_FLOAT \
	VSCVTF_4S(0, 0) \
	VSCVTF_4S(1, 1) \
	VSCVTF_4S(2, 2) \
	VSCVTF_4S(3, 3) \
	VSCVTF_4S(4, 4) \
	VSCVTF_4S(5, 5) \
	VSCVTF_4S(6, 6) \
	VSCVTF_4S(7, 7)

// LOAD_SHIFT reads Shift. SHIFT_SUMS shifts the sums of a group to the left by it, into the unit of the zero points,
// which are subtracted afterwards.
#define LOAD_SHIFT(r) \
	ADD   $ShiftedArgs_Shift, R0, R13 \
	VLD1R (R13), [r.S4]

#define SHIFT_SUMS \
	VUSHL_4S(31, 0, 0) \
	VUSHL_4S(31, 1, 1) \
	VUSHL_4S(31, 2, 2) \
	VUSHL_4S(31, 3, 3) \
	VUSHL_4S(31, 4, 4) \
	VUSHL_4S(31, 5, 5) \
	VUSHL_4S(31, 6, 6) \
	VUSHL_4S(31, 7, 7)

// GROUP_ARGS is ARGS and the scales, for Group and Shifted.
#define GROUP_ARGS \
	ARGS                          \
	MOVD GroupArgs_Scales(R0), R4

#define CLEAR_GROUP \
	CLEAR_4(0, 1, 2, 3) \
	CLEAR_4(4, 5, 6, 7)

// FINAL turns the float32 sums f into outputs of one row of activations and 4 rows of the panel, whose row sums and
// biases are in sums and bias. Element lane of negZero and rec is the row's NegZero and Rec, nan the NaN to write.
#define FINAL(f, sums, bias, negZero, rec, lane, nan, t) \
	VFMLALANE_4S(lane, negZero, sums, f) \
	VFMULLANE_4S(lane, rec, f, f)        \
	VFADD_4S(bias, f, f)                 \
	VFCMEQ_4S(f, f, t)                   \
	VBIF_16B(t, nan, f)

// PANEL_NUMBERS loads the inputs of FINAL for the 8 rows of a panel: V20-V21 row sums, V22-V23 biases, V26 the NaN. R13
// and R14 point to NegZero and Rec.
#define PANEL_NUMBERS \
	SAME(NAN, V26)                  \
	MOVD GroupArgs_RowSums(R0), R13 \
	VLD1 (R13), [V20.S4, V21.S4]    \
	MOVD GroupArgs_Bias(R0), R13    \
	VLD1 (R13), [V22.S4, V23.S4]    \
	MOVD GroupArgs_NegZero(R0), R13 \
	MOVD GroupArgs_Rec(R0), R14

// 8 rows of activations take the panel in two halves of 4 rows, so that all sums stay in registers. R14 is the offset
// of the half among 8 numbers of 4 bytes. R15 is the distance between chunks of codes, R16 between groups of scales.

#define HALF_ARGS \
	MOVD Args_Acts(R0), R1   \
	MOVD Args_Codes(R0), R2  \
	ADD  R14<<1, R2          \
	MOVD Args_Steps(R0), R3  \
	MOVD Args_Groups(R0), R5 \
	MOVD Args_Zeros(R0), R7  \
	ADD  R14, R7             \
	MOVD Args_Sums(R0), R8   \
	MOVD Args_Out(R0), R10   \
	ADD  R14, R10

#define HALF_GROUP \
	HALF_ARGS                     \
	MOVD GroupArgs_Scales(R0), R4 \
	ADD  R14, R4

// HALF_BLOCKS is HALF_ARGS for Blocks: R19 points to the scales of activations.
#define HALF_BLOCKS \
	HALF_ARGS                          \
	MOVD BlocksArgs_Scales(R0), R4     \
	ADD  R14, R4                       \
	MOVD BlocksArgs_ActScales(R0), R19

// HALF_NUMBERS loads the inputs of FINAL for a half: V20 row sums, V21 biases, V24-V25 NegZero, V26-V27 Rec, V30 the
// NaN.
#define HALF_NUMBERS \
	SAME(NAN, V30)                  \
	MOVD GroupArgs_RowSums(R0), R13 \
	ADD  R14, R13                   \
	VLD1 (R13), [V20.S4]            \
	MOVD GroupArgs_Bias(R0), R13    \
	ADD  R14, R13                   \
	VLD1 (R13), [V21.S4]            \
	MOVD GroupArgs_NegZero(R0), R13 \
	VLD1 (R13), [V24.S4, V25.S4]    \
	MOVD GroupArgs_Rec(R0), R13     \
	VLD1 (R13), [V26.S4, V27.S4]

// HALVES computes the two halves. HALF loads the arguments of a half, as HALF_ARGS does, OUT writes its outputs. EACH is
// EACH_GROUP or EACH_PAIR.
#define HALVES(EACH, HALF, CLEAR, STEP, FINISH, OUT) \
	MOVD a+0(FP), R0                \
	MOVD Args_ZeroStep(R0), R9      \
	MOVD Args_OutStride(R0), R11    \
	MOVD ZR, R14                    \
	MOVD $64, R15                   \
half:                                   \
	HALF                            \
	CLEAR_4(8, 9, 10, 11)           \
	CLEAR_4(12, 13, 14, 15)         \
	EACH(CLEAR, STEP, FINISH)       \
	OUT                             \
	ADD  $16, R14                   \
	TBZ  $5, R14, half

#define GROUP_8(CLEAR, STEP, FINISH, OUT) HALVES(EACH_GROUP, HALF_GROUP, CLEAR, STEP, FINISH, OUT)

#define GROUP_4(CLEAR, STEP, FINISH, OUT) \
	GROUP_ARGS                      \
	CLEAR_4(8, 9, 10, 11)           \
	CLEAR_4(12, 13, 14, 15)         \
	EACH_GROUP(CLEAR, STEP, FINISH) \
	PANEL_NUMBERS                   \
	VLD1 (R13), [V24.S4]            \
	VLD1 (R14), [V25.S4]            \
	OUT
