//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "blocks_arm64.h"

// Products of a row of activations with ggml's blocks, by dot products.

#define VSDOT_4S(m, n, d) WORD $(0x4e809400 | (m)<<16 | (n)<<5 | (d))

#define DOT(a, c, d)       \
	VMOVI_2D(d)        \
	VSDOT_4S(a, c, d)

#define DOT2(a, c, b, e, d) \
	DOT(a, c, d)        \
	VSDOT_4S(b, e, d)

#define DOT2W(a, c, b, e, d) DOT2(a, c, b, e, d)

// Sums of rows are of all blocks so far, modulo 2^32: a block's are a difference.

#define ADD2(a, c, b, e, d) \
	VSDOT_4S(a, c, d)   \
	VSDOT_4S(b, e, d)

#define ADD2W(a, c, b, e, d) ADD2(a, c, b, e, d)

#define CLEAR_ROWS() \
	VMOVI_2D(20) \
	VMOVI_2D(21) \
	VMOVI_2D(22) \
	VMOVI_2D(23) \
	VMOVI_2D(25)

#define ROW_SUMS(now, last) \
	VADDP_4S(21, 20, 19)   \
	VADDP_4S(23, 22, now)  \
	VADDP_4S(now, 19, now) \
	VSUB_4S(last, now, 19)

// func gemvQ2KDotprod(a *RowArgs)
TEXT ·gemvQ2KDotprod(SB), NOSPLIT, $0-8
	SUPER(CONSTS_Q2K, BLOCK_Q2K)

// func gemvQ3KDotprod(a *RowArgs)
TEXT ·gemvQ3KDotprod(SB), NOSPLIT, $0-8
	SUPER(CONSTS_Q3K, BLOCK_Q3K)

// func gemvQ4KDotprod(a *RowArgs)
TEXT ·gemvQ4KDotprod(SB), NOSPLIT, $0-8
	SUPER(CONSTS_Q4K, BLOCK_Q4K)

// func gemvQ5KDotprod(a *RowArgs)
TEXT ·gemvQ5KDotprod(SB), NOSPLIT, $0-8
	SUPER(CONSTS_Q5K, BLOCK_Q5K)

// func gemvQ6KDotprod(a *RowArgs)
TEXT ·gemvQ6KDotprod(SB), NOSPLIT, $0-8
	SUPER(CONSTS_Q6K, BLOCK_Q6K)

// func gemvIQ4XSDotprod(a *RowArgs)
TEXT ·gemvIQ4XSDotprod(SB), NOSPLIT, $0-8
	SUPER(CONSTS_IQ4, BLOCK_IQ4XS)

// func gemvQ40Dotprod(a *RowArgs)
TEXT ·gemvQ40Dotprod(SB), NOSPLIT, $0-8
	SMALL(RowArgs_Sums, CONSTS_Q40, ROW_Q40, END_OFFSET)

// func gemvQ41Dotprod(a *RowArgs)
TEXT ·gemvQ41Dotprod(SB), NOSPLIT, $0-8
	SMALL(RowArgs_ActSums, LOW15, ROW_Q41, END_MIN)

// func gemvQ50Dotprod(a *RowArgs)
TEXT ·gemvQ50Dotprod(SB), NOSPLIT, $0-8
	SMALL(RowArgs_Sums, CONSTS_Q50, ROW_Q50, END_OFFSET)

// func gemvQ51Dotprod(a *RowArgs)
TEXT ·gemvQ51Dotprod(SB), NOSPLIT, $0-8
	SMALL(RowArgs_ActSums, CONSTS_FIVE, ROW_Q51, END_MIN)

// func gemvQ80Dotprod(a *RowArgs)
TEXT ·gemvQ80Dotprod(SB), NOSPLIT, $0-8
	SMALL(RowArgs_Sums, NONE, ROW_Q80, END_PLAIN)

// func gemvIQ4NLDotprod(a *RowArgs)
TEXT ·gemvIQ4NLDotprod(SB), NOSPLIT, $0-8
	SMALL(RowArgs_Sums, CONSTS_IQ4, ROW_IQ4NL, END_PLAIN)

// func gemvMXFP4Dotprod(a *RowArgs)
TEXT ·gemvMXFP4Dotprod(SB), NOSPLIT, $0-8
	SMALL(RowArgs_Sums, CONSTS_MXFP4, ROW_MXFP4, END_MXFP4)

// func gemvNVFP4Dotprod(a *RowArgs)
TEXT ·gemvNVFP4Dotprod(SB), NOSPLIT, $0-8
	ROWS4(RowArgs_Sums, CONSTS_NVFP4, BLOCK_NVFP4)

// func gemvTQ10Dotprod(a *RowArgs)
TEXT ·gemvTQ10Dotprod(SB), NOSPLIT, $0-8
	SUPER(CONSTS_TQ1, BLOCK_TQ1)

// func gemvTQ20Dotprod(a *RowArgs)
TEXT ·gemvTQ20Dotprod(SB), NOSPLIT, $0-8
	SUPER(CONSTS_TQ2, BLOCK_TQ2)
