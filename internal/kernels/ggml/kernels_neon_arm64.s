//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"
#include "blocks_arm64.h"

// Products of a row of activations with ggml's blocks, by multiplications of bytes, for CPUs without dot products.

#define VSMULL_8H(m, n, d) WORD $(0x0e20c000 | (m)<<16 | (n)<<5 | (d))
#define VSMLAL_8H(m, n, d) WORD $(0x0e208000 | (m)<<16 | (n)<<5 | (d))
#define VSMLAL2_8H(m, n, d) WORD $(0x4e208000 | (m)<<16 | (n)<<5 | (d))
#define VSADDLP_4S(n, d) WORD $(0x4e602800 | (n)<<5 | (d))
#define VSADALP_4S(n, d) WORD $(0x4e606800 | (n)<<5 | (d))

// 4 products of codes up to 63, or 2 of 8 bits, fit 16 bits: activations are -127 to 127.

#define DOT(a, c, d)          \
	VSMULL_8H(a, c, d)    \
	VSMLAL2_8H(a, c, d)   \
	VSADDLP_4S(d, d)

#define DOT2(a, c, b, e, d)   \
	VSMULL_8H(a, c, d)    \
	VSMLAL2_8H(a, c, d)   \
	VSMLAL_8H(b, e, d)    \
	VSMLAL2_8H(b, e, d)   \
	VSADDLP_4S(d, d)

#define DOT2W(a, c, b, e, d)  \
	DOT(a, c, d)          \
	VSMULL_8H(b, e, 4)    \
	VSMLAL2_8H(b, e, 4)   \
	VSADALP_4S(4, d)

#define ADD2(a, c, b, e, d) DOT2(a, c, b, e, d)

#define ADD2W(a, c, b, e, d) DOT2W(a, c, b, e, d)

#define CLEAR_ROWS()

// The sums of rows are of a block already.
#define ROW_SUMS(now, last) \
	VADDP_4S(21, 20, 19) \
	VADDP_4S(23, 22, 18) \
	VADDP_4S(18, 19, 19)

// func gemvQ2KNEON(a *RowArgs)
TEXT ·gemvQ2KNEON(SB), NOSPLIT, $0-8
	SUPER(CONSTS_Q2K, BLOCK_Q2K)

// func gemvQ3KNEON(a *RowArgs)
TEXT ·gemvQ3KNEON(SB), NOSPLIT, $0-8
	SUPER(CONSTS_Q3K, BLOCK_Q3K)

// func gemvQ4KNEON(a *RowArgs)
TEXT ·gemvQ4KNEON(SB), NOSPLIT, $0-8
	SUPER(CONSTS_Q4K, BLOCK_Q4K)

// func gemvQ5KNEON(a *RowArgs)
TEXT ·gemvQ5KNEON(SB), NOSPLIT, $0-8
	SUPER(CONSTS_Q5K, BLOCK_Q5K)

// func gemvQ6KNEON(a *RowArgs)
TEXT ·gemvQ6KNEON(SB), NOSPLIT, $0-8
	SUPER(CONSTS_Q6K, BLOCK_Q6K)

// func gemvIQ4XSNEON(a *RowArgs)
TEXT ·gemvIQ4XSNEON(SB), NOSPLIT, $0-8
	SUPER(CONSTS_IQ4, BLOCK_IQ4XS)

// func gemvQ40NEON(a *RowArgs)
TEXT ·gemvQ40NEON(SB), NOSPLIT, $0-8
	SMALL(RowArgs_Sums, CONSTS_Q40, ROW_Q40, END_OFFSET)

// func gemvQ41NEON(a *RowArgs)
TEXT ·gemvQ41NEON(SB), NOSPLIT, $0-8
	SMALL(RowArgs_ActSums, LOW15, ROW_Q41, END_MIN)

// func gemvQ50NEON(a *RowArgs)
TEXT ·gemvQ50NEON(SB), NOSPLIT, $0-8
	SMALL(RowArgs_Sums, CONSTS_Q50, ROW_Q50, END_OFFSET)

// func gemvQ51NEON(a *RowArgs)
TEXT ·gemvQ51NEON(SB), NOSPLIT, $0-8
	SMALL(RowArgs_ActSums, CONSTS_FIVE, ROW_Q51, END_MIN)

// func gemvQ80NEON(a *RowArgs)
TEXT ·gemvQ80NEON(SB), NOSPLIT, $0-8
	SMALL(RowArgs_Sums, NONE, ROW_Q80, END_PLAIN)

// func gemvIQ4NLNEON(a *RowArgs)
TEXT ·gemvIQ4NLNEON(SB), NOSPLIT, $0-8
	SMALL(RowArgs_Sums, CONSTS_IQ4, ROW_IQ4NL, END_PLAIN)

// func gemvMXFP4NEON(a *RowArgs)
TEXT ·gemvMXFP4NEON(SB), NOSPLIT, $0-8
	SMALL(RowArgs_Sums, CONSTS_MXFP4, ROW_MXFP4, END_MXFP4)

// func gemvNVFP4NEON(a *RowArgs)
TEXT ·gemvNVFP4NEON(SB), NOSPLIT, $0-8
	ROWS4(RowArgs_Sums, CONSTS_NVFP4, BLOCK_NVFP4)

// func gemvTQ10NEON(a *RowArgs)
TEXT ·gemvTQ10NEON(SB), NOSPLIT, $0-8
	SUPER(CONSTS_TQ1, BLOCK_TQ1)

// func gemvTQ20NEON(a *RowArgs)
TEXT ·gemvTQ20NEON(SB), NOSPLIT, $0-8
	SUPER(CONSTS_TQ2, BLOCK_TQ2)
