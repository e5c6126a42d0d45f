//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "product_arm64.h"
#include "i8mm_arm64.h"

// STORE writes a pair of rows of dots to R13 and moves it past them.
#define STORE(d0, d1, d2, d3) \
	VZIPLOW_2D(d1, d0, 16)              \
	VZIPLOW_2D(d3, d2, 17)              \
	VZIPHIGH_2D(d1, d0, 18)             \
	VZIPHIGH_2D(d3, d2, 19)             \
	VST1.P [V16.S4, V17.S4], (R13)(R11) \
	VST1.P [V18.S4, V19.S4], (R13)(R11)

#define STORE_DOTS_8 \
	MOVD R10, R13         \
	STORE(0, 1, 2, 3)     \
	STORE(4, 5, 6, 7)     \
	STORE(8, 9, 10, 11)   \
	STORE(12, 13, 14, 15) \
	ADD  $32, R10

// func dots8I8MM(a *Args)
TEXT ·dots8I8MM(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_DOTS_8, STEP_DOTS_8, STORE_DOTS_8)
	RET

// 4 rows: V0-V7 are sums, V16-V19 the activations of a step.

#define CLEAR_DOTS_4 \
	CBNZ  R12, symmetric \
	ZERO_POINTS_4        \
	B     cleared        \
symmetric:                   \
	CLEAR_4(0, 1, 2, 3)  \
	CLEAR_4(4, 5, 6, 7)  \
cleared:

#define STORE_DOTS_4 \
	MOVD R10, R13     \
	STORE(0, 1, 2, 3) \
	STORE(4, 5, 6, 7) \
	ADD  $32, R10

// func dots4I8MM(a *Args)
TEXT ·dots4I8MM(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_DOTS_4, STEP_4, STORE_DOTS_4)
	RET

// 2 rows: V0-V3 are sums, V16-V17 the activations of a step.

#define CLEAR_DOTS_2 \
	CBNZ R12, symmetric \
	ZERO_POINTS_2       \
	B    cleared        \
symmetric:                  \
	CLEAR_4(0, 1, 2, 3) \
cleared:

#define STORE_DOTS_2 \
	MOVD R10, R13     \
	STORE(0, 1, 2, 3) \
	ADD  $32, R10

// func dots2I8MM(a *Args)
TEXT ·dots2I8MM(SB), NOSPLIT, $0-8
	ARGS
	EACH_GROUP(CLEAR_DOTS_2, STEP_2, STORE_DOTS_2)
	RET
