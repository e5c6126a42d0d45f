// Shared by the products of all instruction sets. Registers:
//
//	R0 the arguments           R6  steps left in the group
//	R1 activations             R7  zero points, R9 their step
//	R2 codes                   R8  sums of activations
//	R3 steps of the groups     R10 output, R11 its stride
//	R4 scales                  R12 NoZeros
//	R5 groups left             R13-R17, R19, R20 the kernel's own
//
// Macros whose instructions are words take V registers by number.

// ARGS reads the arguments that all products have.
#define ARGS \
	MOVD  a+0(FP), R0             \
	MOVD  Args_Acts(R0), R1       \
	MOVD  Args_Codes(R0), R2      \
	MOVD  Args_Steps(R0), R3      \
	MOVD  Args_Groups(R0), R5     \
	MOVD  Args_Zeros(R0), R7      \
	MOVD  Args_Sums(R0), R8       \
	MOVD  Args_ZeroStep(R0), R9   \
	MOVD  Args_Out(R0), R10       \
	MOVD  Args_OutStride(R0), R11 \
	MOVBU Args_NoZeros(R0), R12

// EACH_GROUP is the loops over groups and their steps: CLEAR before the steps of a group, STEP for 16 columns, FINISH
// after the steps. Steps go in pairs, so that a group of 32 columns branches only at its end.
#define EACH_GROUP(CLEAR, STEP, FINISH) \
group:                      \
	MOVWU.P 4(R3), R6   \
	CLEAR               \
	TBNZ    $0, R6, odd \
pair:                       \
	STEP                \
	STEP                \
	SUBS    $2, R6      \
	BNE     pair        \
finish:                     \
	FINISH              \
	SUBS    $1, R5      \
	BNE     group       \
	B       done        \
odd:                        \
	STEP                \
	SUBS    $1, R6      \
	BNE     pair        \
	B       finish      \
done:

// EACH_PAIR is EACH_GROUP for groups of two steps.
#define EACH_PAIR(CLEAR, STEP, FINISH) \
group:           \
	CLEAR    \
	STEP     \
	STEP     \
	FINISH   \
	SUBS $1, R5 \
	BNE  group

#define CLEAR_4(d0, d1, d2, d3) \
	VZERO(d0) \
	VZERO(d1) \
	VZERO(d2) \
	VZERO(d3)
