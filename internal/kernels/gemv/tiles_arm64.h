// Blocks of nibbles in the tiles 4x16x2, 4x8x2 and 8x8x2, by dot products; dotprod_arm64.h has 8x16x2. As there, the
// accumulators hold codes times 16.

// Tile 4x16x2: 16 bytes are columns 8s to 8s+7, and in the high nibbles columns 16+8s to 23+8s, of 2 rows. V20 and V21
// take the first columns, c and d the others; V20 and c are rows 0 and 1, V21 and d rows 2 and 3, two int32 for each row.
#define NIBBLES4X16(c, d)                               \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	ACTIVATIONS()                                   \
	NIBBLES(0, 1, 2, 3, 8, 9, 10, 11)               \
	VSDOT_4S(16, 8, 20)                             \
	VSDOT_4S(16, 9, 21)                             \
	VSDOT_4S(17, 10, c)                             \
	VSDOT_4S(17, 11, d)                             \
	VSDOT_4S(18, 0, 20)                             \
	VSDOT_4S(18, 1, 21)                             \
	VSDOT_4S(19, 2, c)                              \
	VSDOT_4S(19, 3, d)

#define BLOCK4_4X16() NIBBLES4X16(20, 21)

#define REDUCE4_4X16() \
	VADDP_4S(21, 20, 0)

// Tile 4x8x2: 16 bytes are columns 4s to 4s+3, and in the high nibbles columns 16+4s to 19+4s, of 4 rows. Activations
// are row-major: the columns meet one element of V16 or V17. All accumulators hold the same 4 rows.
#define NIBBLES4X8(c, d)                                \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	VLD1.P 32(R10), [V16.B16, V17.B16]              \
	NIBBLES(0, 1, 2, 3, 8, 9, 10, 11)               \
	VSDOT_4S_0(16, 8, 20)                           \
	VSDOT_4S_1(16, 9, 21)                           \
	VSDOT_4S_2(16, 10, c)                           \
	VSDOT_4S_3(16, 11, d)                           \
	VSDOT_4S_0(17, 0, 20)                           \
	VSDOT_4S_1(17, 1, 21)                           \
	VSDOT_4S_2(17, 2, c)                            \
	VSDOT_4S_3(17, 3, d)

#define BLOCK4_4X8() NIBBLES4X8(20, 21)

#define REDUCE4_4X8() \
	VADD V21.S4, V20.S4, V0.S4

// Tile 8x8x2: the same with 32 bytes of 8 rows. V20 and V22 are rows 0 to 3, V21 and V23 rows 4 to 7.
#define BLOCK4_8X8()                                    \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	VLD1.P 32(R10), [V16.B16, V17.B16]              \
	NIBBLES(0, 1, 2, 3, 8, 9, 10, 11)               \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16] \
	VSDOT_4S_0(16, 8, 20)                           \
	VSDOT_4S_0(16, 9, 21)                           \
	VSDOT_4S_1(16, 10, 22)                          \
	VSDOT_4S_1(16, 11, 23)                          \
	VSDOT_4S_0(17, 0, 20)                           \
	VSDOT_4S_0(17, 1, 21)                           \
	VSDOT_4S_1(17, 2, 22)                           \
	VSDOT_4S_1(17, 3, 23)                           \
	NIBBLES(4, 5, 6, 7, 12, 13, 14, 15)             \
	VSDOT_4S_2(16, 12, 20)                          \
	VSDOT_4S_2(16, 13, 21)                          \
	VSDOT_4S_3(16, 14, 22)                          \
	VSDOT_4S_3(16, 15, 23)                          \
	VSDOT_4S_2(17, 4, 20)                           \
	VSDOT_4S_2(17, 5, 21)                           \
	VSDOT_4S_3(17, 6, 22)                           \
	VSDOT_4S_3(17, 7, 23)

#define REDUCE4_8X8()              \
	VADD V22.S4, V20.S4, V0.S4 \
	VADD V23.S4, V21.S4, V1.S4

// ZERO2 clears the accumulators of groups in panels of 4 rows.
#define ZERO2()      \
	VMOVI_2D(20) \
	VMOVI_2D(21)
