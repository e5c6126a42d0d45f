//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"

// The epilogues, for dots R1, groups R2, scales R3, as R4, zeros R5, asum R6 and step R7. V0-V1 are the 8 outputs, V2-V5 the
// dots of one or two groups, V16-V19 their scales, V20-V23 their zeros. NaNs are not replaced.

// EACH_PAIR is the loop over groups, two a turn. If their number is odd, one group comes first.
#define EACH_PAIR(ONE, TWO) \
	VZERO(0)          \
	VZERO(1)          \
	TBZ  $0, R2, pair \
	ONE               \
	SUBS $1, R2       \
	BEQ  done         \
pair:                     \
	TWO               \
	SUBS $2, R2       \
	BNE  pair         \
done:                     \
	VST1 [V0.S4, V1.S4], (R0)

#define LOAD_1 \
	VLD1.P 32(R1), [V2.S4, V3.S4] \
	VLD1.P 32(R3), [V16.S4, V17.S4]

#define LOAD_2 \
	VLD1.P 64(R1), [V2.S4, V3.S4, V4.S4, V5.S4] \
	VLD1.P 64(R3), [V16.S4, V17.S4, V18.S4, V19.S4]

#define TO_FLOAT_1 \
	VSCVTF_4S(2, 2) \
	VSCVTF_4S(3, 3)

#define TO_FLOAT_2 \
	TO_FLOAT_1      \
	VSCVTF_4S(4, 4) \
	VSCVTF_4S(5, 5)

// SCALE multiplies the scales w0 and w1 of a group with the scale a of the activations.
#define SCALE(a, w0, w1) \
	VFMUL_4S(a, w0, w0) \
	VFMUL_4S(a, w1, w1)

// ADD_x adds the groups' dots times their scales.
#define ADD_1 \
	VFMLA V16.S4, V2.S4, V0.S4 \
	VFMLA V17.S4, V3.S4, V1.S4

#define ADD_2 \
	ADD_1                      \
	VFMLA V18.S4, V4.S4, V0.S4 \
	VFMLA V19.S4, V5.S4, V1.S4

#define FMA_1 \
	LOAD_1                 \
	VLD1R.P (R4)(R7), [V6.S4] \
	TO_FLOAT_1             \
	SCALE(6, 16, 17)       \
	ADD_1

#define FMA_2 \
	LOAD_2                        \
	VLD1R.P (R4)(R7), [V6.S4]     \
	VLD1R.P (R4)(R7), [V7.S4]     \
	TO_FLOAT_2                    \
	SCALE(6, 16, 17)              \
	SCALE(7, 18, 19)              \
	ADD_2

// func epilogueFMANEON(out *float32, t *int32, groups int, scales, as *float32, step int)
TEXT ·epilogueFMANEON(SB), NOSPLIT, $0-48
	MOVD out+0(FP), R0
	MOVD t+8(FP), R1
	MOVD groups+16(FP), R2
	MOVD scales+24(FP), R3
	MOVD as+32(FP), R4
	MOVD step+40(FP), R7
	EACH_PAIR(FMA_1, FMA_2)
	RET

#define QAI4_1 \
	LOAD_1                           \
	VLD1R.P (R4)(R7), [V6.S4]           \
	VLD1.P  32(R5), [V20.S4, V21.S4] \
	VLD1R.P (R6)(R7), [V24.S4]          \
	VSHL    $4, V2.S4, V2.S4         \
	VSHL    $4, V3.S4, V3.S4         \
	TO_FLOAT_1                       \
	SCALE(6, 16, 17)                 \
	VFMLA   V24.S4, V20.S4, V0.S4    \
	VFMLA   V24.S4, V21.S4, V1.S4    \
	ADD_1

#define QAI4_2 \
	LOAD_2                                           \
	VLD1R.P (R4)(R7), [V6.S4]                        \
	VLD1R.P (R4)(R7), [V7.S4]                        \
	VLD1.P  64(R5), [V20.S4, V21.S4, V22.S4, V23.S4] \
	VLD1R.P (R6)(R7), [V24.S4]                       \
	VLD1R.P (R6)(R7), [V25.S4]                       \
	VSHL    $4, V2.S4, V2.S4                         \
	VSHL    $4, V3.S4, V3.S4                         \
	VSHL    $4, V4.S4, V4.S4                         \
	VSHL    $4, V5.S4, V5.S4                         \
	TO_FLOAT_2                                       \
	SCALE(6, 16, 17)                                 \
	SCALE(7, 18, 19)                                 \
	VFMLA   V24.S4, V20.S4, V0.S4                    \
	VFMLA   V24.S4, V21.S4, V1.S4                    \
	ADD_1                                            \
	VFMLA   V25.S4, V22.S4, V0.S4                    \
	VFMLA   V25.S4, V23.S4, V1.S4                    \
	VFMLA   V18.S4, V4.S4, V0.S4                     \
	VFMLA   V19.S4, V5.S4, V1.S4

// func epilogueQAI4NEON(out *float32, t *int32, groups int, scales, zeros, as, asum *float32, step int)
TEXT ·epilogueQAI4NEON(SB), NOSPLIT, $0-64
	MOVD out+0(FP), R0
	MOVD t+8(FP), R1
	MOVD groups+16(FP), R2
	MOVD scales+24(FP), R3
	MOVD zeros+32(FP), R5
	MOVD as+40(FP), R4
	MOVD asum+48(FP), R6
	MOVD step+56(FP), R7
	EACH_PAIR(QAI4_1, QAI4_2)
	RET

// SUM adds the products of w0 and w1, each rounded first.
#define SUM(w0, w1) \
	VFADD_4S(w0, 0, 0) \
	VFADD_4S(w1, 1, 1)

#define TORCHAO_1 \
	LOAD_1              \
	TO_FLOAT_1          \
	SCALE(6, 16, 17)    \
	VFMUL_4S(2, 16, 16) \
	VFMUL_4S(3, 17, 17) \
	SUM(16, 17)

#define TORCHAO_2 \
	LOAD_2              \
	TO_FLOAT_2          \
	SCALE(6, 16, 17)    \
	SCALE(6, 18, 19)    \
	VFMUL_4S(2, 16, 16) \
	VFMUL_4S(3, 17, 17) \
	VFMUL_4S(4, 18, 18) \
	VFMUL_4S(5, 19, 19) \
	SUM(16, 17)         \
	SUM(18, 19)

// func epilogueTorchAONEON(out *float32, t *int32, groups int, scales *float32, as float32)
TEXT ·epilogueTorchAONEON(SB), NOSPLIT, $0-36
	MOVD  out+0(FP), R0
	MOVD  t+8(FP), R1
	MOVD  groups+16(FP), R2
	MOVD  scales+24(FP), R3
	FMOVS as+32(FP), F6
	VDUP  V6.S[0], V6.S4
	EACH_PAIR(TORCHAO_1, TORCHAO_2)
	RET
