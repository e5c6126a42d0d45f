//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "frame_arm64.h"
#include "lowbit_arm64.h"
#include "dotprod_arm64.h"

// Products of one row of activations with lowbit weights of 4 bits, tile 8x16x2, by dot products, with F16 and F32 scales.

#define SCALES_F16() \
	VLD1.P 16(R3), [V4.H8] \
	VFCVTL_4S(4, 2)        \
	VFCVTL2_4S(4, 3)

#define EPILOGUE16_F16() \
	SCALES_F16() \
	SCALED16()

#define EPILOGUE_ZEROS16_F16() \
	SCALES_F16() \
	ZEROS_SCALED16()

#define EPILOGUE1_ZEROS16_F16() \
	SCALES_F16() \
	ZEROS1_SCALED16()

// func lowbit4F16Dotprod(a *LowbitArgs)
TEXT ·lowbit4F16Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS4, ZERO4, BLOCK4, PAIRS, EPILOGUE16_F16, EPILOGUE16_F16)

// func lowbit4F16SplitDotprod(a *LowbitArgs)
TEXT ·lowbit4F16SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS4, ZERO4, BLOCK4, FIRST4, SECOND4, PAIRS, EPILOGUE16_F16)

// func lowbit4ZerosF16Dotprod(a *LowbitArgs)
TEXT ·lowbit4ZerosF16Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS4, ZERO4, BLOCK4, PAIRS, EPILOGUE_ZEROS16_F16, EPILOGUE1_ZEROS16_F16)

// func lowbit4ZerosF16SplitDotprod(a *LowbitArgs)
TEXT ·lowbit4ZerosF16SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS4, ZERO4, BLOCK4, FIRST4, SECOND4, PAIRS, EPILOGUE_ZEROS16_F16)

#define SCALES_F32() \
	VLD1.P 32(R3), [V2.S4, V3.S4]

#define EPILOGUE16_F32() \
	SCALES_F32() \
	SCALED16()

#define EPILOGUE_ZEROS16_F32() \
	SCALES_F32() \
	ZEROS_SCALED16()

#define EPILOGUE1_ZEROS16_F32() \
	SCALES_F32() \
	ZEROS1_SCALED16()

// func lowbit4F32Dotprod(a *LowbitArgs)
TEXT ·lowbit4F32Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS4, ZERO4, BLOCK4, PAIRS, EPILOGUE16_F32, EPILOGUE16_F32)

// func lowbit4F32SplitDotprod(a *LowbitArgs)
TEXT ·lowbit4F32SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS4, ZERO4, BLOCK4, FIRST4, SECOND4, PAIRS, EPILOGUE16_F32)

// func lowbit4ZerosF32Dotprod(a *LowbitArgs)
TEXT ·lowbit4ZerosF32Dotprod(SB), NOSPLIT, $0-8
	LOWBIT(CONSTS4, ZERO4, BLOCK4, PAIRS, EPILOGUE_ZEROS16_F32, EPILOGUE1_ZEROS16_F32)

// func lowbit4ZerosF32SplitDotprod(a *LowbitArgs)
TEXT ·lowbit4ZerosF32SplitDotprod(SB), NOSPLIT, $0-8
	LOWBIT_SPLIT(CONSTS4, ZERO4, BLOCK4, FIRST4, SECOND4, PAIRS, EPILOGUE_ZEROS16_F32)
