//go:build !purego

#include "textflag.h"
#include "neon_arm64.h"
#include "tiles_arm64.h"

// Instructions of ARMv8.0 only. FMLA rounds once, as the portable code does; denormals are as FPCR stands in Go: nothing
// flushed. A step is four columns, and prefetches half as many cache lines as it reads.

// func tile6NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
TEXT ·tile6NEON(SB), NOSPLIT, $0-72
	BEGIN(EACH6)

loop:
	FLDPQ.P 32(R3), (F0, F1)
	FLDPQ.P 32(R3), (F2, F3)
	FLDPQ.P 32(R3), (F4, F5)
	PRFM    (R7), PLDL1KEEP
	COLUMN6(0)
	COLUMN6(1)
	PRFM    64(R7), PLDL1KEEP
	COLUMN6(2)
	COLUMN6(3)
	END(EACH6)

// func tile4NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
TEXT ·tile4NEON(SB), NOSPLIT, $0-72
	BEGIN(EACH4)

loop:
	FLDPQ.P 32(R3), (F0, F1)
	FLDPQ.P 32(R3), (F2, F3)
	PRFM    (R7), PLDL1KEEP
	COLUMN(FMA4, 0)
	COLUMN(FMA4, 1)
	PRFM    64(R7), PLDL1KEEP
	COLUMN(FMA4, 2)
	COLUMN(FMA4, 3)
	END(EACH4)

// func tile2NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
TEXT ·tile2NEON(SB), NOSPLIT, $0-72
	BEGIN(EACH2)

loop:
	FLDPQ.P 32(R3), (F0, F1)
	PRFM    (R7), PLDL1KEEP
	COLUMN(FMA2, 0)
	COLUMN(FMA2, 1)
	PRFM    64(R7), PLDL1KEEP
	COLUMN(FMA2, 2)
	COLUMN(FMA2, 3)
	END(EACH2)

// func tile1NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
TEXT ·tile1NEON(SB), NOSPLIT, $0-72
	BEGIN(EACH1)

loop:
	FMOVQ.P 16(R3), F0
	PRFM    (R7), PLDL1KEEP
	COLUMN(FMA1, 0)
	COLUMN(FMA1, 1)
	PRFM    64(R7), PLDL1KEEP
	COLUMN(FMA1, 2)
	COLUMN(FMA1, 3)
	END(EACH1)

// func tile6BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
TEXT ·tile6BF16NEON(SB), NOSPLIT, $0-72
	BEGIN(EACH6)

loop:
	FLDPQ.P 32(R3), (F0, F1)
	FLDPQ.P 32(R3), (F2, F3)
	FLDPQ.P 32(R3), (F4, F5)
	PRFM    (R7), PLDL1KEEP
	PAIR6(0)
	PAIR6(2)
	END(EACH6)

// func tile4BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
TEXT ·tile4BF16NEON(SB), NOSPLIT, $0-72
	VMVNI_4S(31)
	BEGIN(EACH4)

loop:
	FLDPQ.P 32(R3), (F0, F1)
	FLDPQ.P 32(R3), (F2, F3)
	PRFM    (R7), PLDL1KEEP
	PAIR(FMA4, 0)
	PAIR(FMA4, 2)
	END(EACH4)

// func tile2BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
TEXT ·tile2BF16NEON(SB), NOSPLIT, $0-72
	VMVNI_4S(31)
	BEGIN(EACH2)

loop:
	FLDPQ.P 32(R3), (F0, F1)
	PRFM    (R7), PLDL1KEEP
	PAIR(FMA2, 0)
	PAIR(FMA2, 2)
	END(EACH2)

// func tile1BF16NEON(out *float32, stride int, w *uint32, x *float32, k int, bias *float32, resume int, ahead *uint32, step int)
TEXT ·tile1BF16NEON(SB), NOSPLIT, $0-72
	VMVNI_4S(31)
	BEGIN(EACH1)

loop:
	FMOVQ.P 16(R3), F0
	PRFM    (R7), PLDL1KEEP
	PAIR(FMA1, 0)
	PAIR(FMA1, 2)
	END(EACH1)
