//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "product_arm64.h"
#include "group_arm64.h"
#include "row_arm64.h"

// One row of activations. SDOT computes it as fast as SMMLA, which would pad it with a row of zeros.

// V0-V3 are sums as SDOT leaves them, [r, r, r+1, r+1], until SUMS_1. The two chunks of activations of a step are each
// in a register twice.

#define CLEAR_1 \
	CLEAR_4(0, 1, 2, 3)

#define STEP_1 \
	VLD2R.P 16(R1), [V16.D2, V17.D2]                     \
	VLD1.P  64(R2), [V20.B16, V21.B16, V22.B16, V23.B16] \
	VLD1.P  64(R2), [V24.B16, V25.B16, V26.B16, V27.B16] \
	VSDOT(16, 20, 0)                                     \
	VSDOT(16, 21, 1)                                     \
	VSDOT(16, 22, 2)                                     \
	VSDOT(16, 23, 3)                                     \
	VSDOT(17, 24, 0)                                     \
	VSDOT(17, 25, 1)                                     \
	VSDOT(17, 26, 2)                                     \
	VSDOT(17, 27, 3)

#define SUMS_1 \
	VADDP_4S(1, 0, 0) \
	VADDP_4S(3, 2, 1)

// func dots1I8MM(a *Args)
TEXT ·dots1I8MM(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_1, STEP_1, STORE_DOTS_1)
	RET

// func group1I8MM(a *GroupArgs)
TEXT ·group1I8MM(SB), NOSPLIT, $0-8
	GROUP_ARGS
	VZERO(8)
	VZERO(9)
	EACH_GROUP(CLEAR_1, STEP_1, FINISH_1)
	OUT_1
	RET

// func shifted1I8MM(a *ShiftedArgs)
TEXT ·shifted1I8MM(SB), NOSPLIT, $0-8
	GROUP_ARGS
	LOAD_SHIFT(V31)
	VZERO(8)
	VZERO(9)
	EACH_GROUP(CLEAR_1, STEP_1, FINISH_SHIFTED_1)
	OUT_1
	RET
