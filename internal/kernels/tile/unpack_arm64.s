//go:build !purego

#include "textflag.h"
#include "go_asm.h"
#include "neon_arm64.h"

// Unpacking of TorchAO's bit planes, ARMv8.0. The 16*b bytes of a unit of 128 codes are b planes of 16 bytes, position
// i of the planes holding the codes at position i of 8 lanes; packing/bitplane.go says which bits. A field that is
// spread over planes is gathered at the top of a byte, by SRI, and shifted down.
//
// R1 is the next unit. R19 counts the units left in this run, R2 the units left from the run's first unit on. R20 is
// Run (or all units), R21 Gap. R3 is the step after this unit, R4 the sum of this step and the next. R8-R15 are the
// destinations of lanes 0-7 of this unit. V30 and V31 are Flip and Sub.

#define UNPACK_ARGS \
	MOVD dst+0(FP), R0                   \
	MOVD src+8(FP), R1                   \
	MOVD units+16(FP), R2                \
	MOVD lanes+24(FP), R5                \
	MOVD Lanes_Gap(R5), R21              \
	MOVD Lanes_Run(R5), R20              \
	CMP  $0, R20                         \
	CSEL EQ, R2, R20, R20                \
	MOVD R20, R19                        \
	MOVD (Lanes_Step+0)(R5), R3          \
	MOVD (Lanes_Step+8)(R5), R4          \
	ADD  R3, R4                          \
	LDP  (Lanes_Lane+0)(R5), (R8, R9)    \
	LDP  (Lanes_Lane+16)(R5), (R10, R11) \
	LDP  (Lanes_Lane+32)(R5), (R12, R13) \
	LDP  (Lanes_Lane+48)(R5), (R14, R15) \
	ADD  R0, R8                          \
	ADD  R0, R9                          \
	ADD  R0, R10                         \
	ADD  R0, R11                         \
	ADD  R0, R12                         \
	ADD  R0, R13                         \
	ADD  R0, R14                         \
	ADD  R0, R15                         \
	MOVBU Lanes_Flip(R5), R6             \
	VDUP R6, V30.B16                     \
	MOVBU Lanes_Sub(R5), R6              \
	VDUP R6, V31.B16

// MASK makes the low bits of V29 the mask of a field.
#define MASK(bits) \
	VMOVI $bits, V29.B16

// STORE_LANES writes the lanes, whose fields are in V0-V7, and goes to the next unit, to label unit.
#define STORE_LANES \
	VEOR V30.B16, V0.B16, V0.B16 \
	VEOR V30.B16, V1.B16, V1.B16 \
	VEOR V30.B16, V2.B16, V2.B16 \
	VEOR V30.B16, V3.B16, V3.B16 \
	VEOR V30.B16, V4.B16, V4.B16 \
	VEOR V30.B16, V5.B16, V5.B16 \
	VEOR V30.B16, V6.B16, V6.B16 \
	VEOR V30.B16, V7.B16, V7.B16 \
	VSUB V31.B16, V0.B16, V0.B16 \
	VSUB V31.B16, V1.B16, V1.B16 \
	VSUB V31.B16, V2.B16, V2.B16 \
	VSUB V31.B16, V3.B16, V3.B16 \
	VSUB V31.B16, V4.B16, V4.B16 \
	VSUB V31.B16, V5.B16, V5.B16 \
	VSUB V31.B16, V6.B16, V6.B16 \
	VSUB V31.B16, V7.B16, V7.B16 \
	VST1.P [V0.B16], (R8)(R3)    \
	VST1.P [V1.B16], (R9)(R3)    \
	VST1.P [V2.B16], (R10)(R3)   \
	VST1.P [V3.B16], (R11)(R3)   \
	VST1.P [V4.B16], (R12)(R3)   \
	VST1.P [V5.B16], (R13)(R3)   \
	VST1.P [V6.B16], (R14)(R3)   \
	VST1.P [V7.B16], (R15)(R3)   \
	SUB  R3, R4, R3              \
	SUBS $1, R19                 \
	BNE  unit                    \
	ADD  R21, R1                 \
	MOVD R20, R19                \
	SUBS R20, R2                 \
	BNE  unit

// func unpack1(dst, src *byte, units int, lanes *Lanes)
TEXT ·unpack1(SB), NOSPLIT, $0-32
	UNPACK_ARGS
	MASK(1)

unit:
	VLD1.P 16(R1), [V7.B16]
	VUSHR  $7, V7.B16, V0.B16
	VUSHR  $6, V7.B16, V1.B16
	VUSHR  $5, V7.B16, V2.B16
	VUSHR  $4, V7.B16, V3.B16
	VUSHR  $3, V7.B16, V4.B16
	VUSHR  $2, V7.B16, V5.B16
	VUSHR  $1, V7.B16, V6.B16
	VAND   V29.B16, V1.B16, V1.B16
	VAND   V29.B16, V2.B16, V2.B16
	VAND   V29.B16, V3.B16, V3.B16
	VAND   V29.B16, V4.B16, V4.B16
	VAND   V29.B16, V5.B16, V5.B16
	VAND   V29.B16, V6.B16, V6.B16
	VAND   V29.B16, V7.B16, V7.B16
	STORE_LANES
	RET

// func unpack2(dst, src *byte, units int, lanes *Lanes)
TEXT ·unpack2(SB), NOSPLIT, $0-32
	UNPACK_ARGS
	MASK(3)

unit:
	VLD1.P 32(R1), [V16.B16, V17.B16]
	VUSHR  $6, V16.B16, V0.B16
	VUSHR  $4, V16.B16, V1.B16
	VUSHR  $2, V16.B16, V2.B16
	VUSHR  $6, V17.B16, V4.B16
	VUSHR  $4, V17.B16, V5.B16
	VUSHR  $2, V17.B16, V6.B16
	VAND   V29.B16, V1.B16, V1.B16
	VAND   V29.B16, V2.B16, V2.B16
	VAND   V29.B16, V16.B16, V3.B16
	VAND   V29.B16, V5.B16, V5.B16
	VAND   V29.B16, V6.B16, V6.B16
	VAND   V29.B16, V17.B16, V7.B16
	STORE_LANES
	RET

// func unpack3(dst, src *byte, units int, lanes *Lanes)
//
// Lanes 6 and 7 have their low 2 bits at the top of planes 0 and 1, and bit 2 in bits 7 and 6 of plane 2.
TEXT ·unpack3(SB), NOSPLIT, $0-32
	UNPACK_ARGS
	MASK(7)

unit:
	VLD1.P 48(R1), [V16.B16, V17.B16, V18.B16]
	VUSHR  $3, V16.B16, V0.B16
	VAND   V29.B16, V16.B16, V1.B16
	VUSHR  $3, V17.B16, V2.B16
	VAND   V29.B16, V17.B16, V3.B16
	VUSHR  $3, V18.B16, V4.B16
	VAND   V29.B16, V18.B16, V5.B16
	VSHL   $1, V18.B16, V7.B16
	VSRI   $1, V16.B16, V18.B16
	VSRI   $1, V17.B16, V7.B16
	VAND   V29.B16, V0.B16, V0.B16
	VAND   V29.B16, V2.B16, V2.B16
	VAND   V29.B16, V4.B16, V4.B16
	VUSHR  $5, V18.B16, V6.B16
	VUSHR  $5, V7.B16, V7.B16
	STORE_LANES
	RET

// func unpack4(dst, src *byte, units int, lanes *Lanes)
TEXT ·unpack4(SB), NOSPLIT, $0-32
	UNPACK_ARGS
	MASK(15)

unit:
	VLD1.P 64(R1), [V16.B16, V17.B16, V18.B16, V19.B16]
	VAND   V29.B16, V16.B16, V0.B16
	VUSHR  $4, V16.B16, V1.B16
	VAND   V29.B16, V17.B16, V2.B16
	VUSHR  $4, V17.B16, V3.B16
	VAND   V29.B16, V18.B16, V4.B16
	VUSHR  $4, V18.B16, V5.B16
	VAND   V29.B16, V19.B16, V6.B16
	VUSHR  $4, V19.B16, V7.B16
	STORE_LANES
	RET

// func unpack5(dst, src *byte, units int, lanes *Lanes)
//
// The odd lanes have their low 3 bits at the top of planes 0 to 3, and bits 3 and 4 in plane 4, lane 1 lowest.
TEXT ·unpack5(SB), NOSPLIT, $0-32
	UNPACK_ARGS
	MASK(31)

unit:
	VLD1.P 64(R1), [V16.B16, V17.B16, V18.B16, V19.B16]
	VLD1.P 16(R1), [V7.B16]
	VAND   V29.B16, V16.B16, V0.B16
	VAND   V29.B16, V17.B16, V2.B16
	VAND   V29.B16, V18.B16, V4.B16
	VAND   V29.B16, V19.B16, V6.B16
	VSHL   $6, V7.B16, V1.B16
	VSHL   $4, V7.B16, V3.B16
	VSHL   $2, V7.B16, V5.B16
	VSRI   $2, V16.B16, V1.B16
	VSRI   $2, V17.B16, V3.B16
	VSRI   $2, V18.B16, V5.B16
	VSRI   $2, V19.B16, V7.B16
	VUSHR  $3, V1.B16, V1.B16
	VUSHR  $3, V3.B16, V3.B16
	VUSHR  $3, V5.B16, V5.B16
	VUSHR  $3, V7.B16, V7.B16
	STORE_LANES
	RET

// func unpack6(dst, src *byte, units int, lanes *Lanes)
//
// Lane 3 is in the top 2 bits of planes 0, 1 and 2, its low bits first. Lane 7 is in the top 2 bits of planes 3, 4 and
// 5.
TEXT ·unpack6(SB), NOSPLIT, $0-32
	UNPACK_ARGS
	MASK(63)

unit:
	VLD1.P 48(R1), [V16.B16, V17.B16, V18.B16]
	VLD1.P 48(R1), [V19.B16, V20.B16, V21.B16]
	VAND   V29.B16, V16.B16, V0.B16
	VAND   V29.B16, V17.B16, V1.B16
	VAND   V29.B16, V18.B16, V2.B16
	VAND   V29.B16, V19.B16, V4.B16
	VAND   V29.B16, V20.B16, V5.B16
	VAND   V29.B16, V21.B16, V6.B16
	VSRI   $2, V17.B16, V18.B16
	VSRI   $2, V20.B16, V21.B16
	VSRI   $4, V16.B16, V18.B16
	VSRI   $4, V19.B16, V21.B16
	VUSHR  $2, V18.B16, V3.B16
	VUSHR  $2, V21.B16, V7.B16
	STORE_LANES
	RET

// func unpack7(dst, src *byte, units int, lanes *Lanes)
//
// Lane 7 is in the top bits of the planes, its low bit in plane 0.
TEXT ·unpack7(SB), NOSPLIT, $0-32
	UNPACK_ARGS
	MASK(127)

unit:
	VLD1.P 64(R1), [V16.B16, V17.B16, V18.B16, V19.B16]
	VLD1.P 48(R1), [V20.B16, V21.B16, V22.B16]
	VAND   V29.B16, V16.B16, V0.B16
	VAND   V29.B16, V17.B16, V1.B16
	VAND   V29.B16, V18.B16, V2.B16
	VAND   V29.B16, V19.B16, V3.B16
	VAND   V29.B16, V20.B16, V4.B16
	VAND   V29.B16, V21.B16, V5.B16
	VAND   V29.B16, V22.B16, V6.B16
	VSRI   $1, V21.B16, V22.B16
	VSRI   $2, V20.B16, V22.B16
	VSRI   $3, V19.B16, V22.B16
	VSRI   $4, V18.B16, V22.B16
	VSRI   $5, V17.B16, V22.B16
	VSRI   $6, V16.B16, V22.B16
	VUSHR  $1, V22.B16, V7.B16
	STORE_LANES
	RET

// func unpack8(dst, src *byte, units int, lanes *Lanes)
TEXT ·unpack8(SB), NOSPLIT, $0-32
	UNPACK_ARGS

unit:
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
	VLD1.P 64(R1), [V4.B16, V5.B16, V6.B16, V7.B16]
	STORE_LANES
	RET

// func zipNEON(dst *byte, n int)
TEXT ·zipNEON(SB), NOSPLIT, $0-16
	MOVD dst+0(FP), R0
	MOVD n+8(FP), R1

run:
	VLD1   (R0), [V0.S4, V1.S4]
	VST2.P [V0.S4, V1.S4], 32(R0)
	SUBS   $1, R1
	BNE    run
	RET

// func unzipNEON(dst *byte, n int)
TEXT ·unzipNEON(SB), NOSPLIT, $0-16
	MOVD dst+0(FP), R0
	MOVD n+8(FP), R1
	MOVD R0, R2
	TBZ  $0, R1, run
	VLD2.P 32(R2), [V0.S4, V1.S4]
	VST1.P [V0.S4, V1.S4], 32(R0)
	SUBS   $1, R1
	BEQ    done

run:
	VLD2.P 32(R2), [V0.S4, V1.S4]
	VLD2.P 32(R2), [V2.S4, V3.S4]
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)
	SUBS   $2, R1
	BNE    run

done:
	RET
