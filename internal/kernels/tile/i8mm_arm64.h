// Products by SMMLA: 2 rows of activations x 8 columns times 2 rows of codes x 8 columns, added to the 4 sums
//
//	[a0 w0, a0 w1, a1 w0, a1 w1]
//
// so that an accumulator is a square of 2 outputs of 2 rows, and ZIP by halves makes rows of two squares.

// PANEL_x multiplies a pair of rows of activations, in register a, with the 8 rows of the panel in V20-V23 or V24-V27.
#define PANEL_0(a, d0, d1, d2, d3) \
	VSMMLA(20, a, d0) \
	VSMMLA(21, a, d1) \
	VSMMLA(22, a, d2) \
	VSMMLA(23, a, d3)

#define PANEL_1(a, d0, d1, d2, d3) \
	VSMMLA(24, a, d0) \
	VSMMLA(25, a, d1) \
	VSMMLA(26, a, d2) \
	VSMMLA(27, a, d3)

#define LOAD_PANEL \
	VLD1.P 64(R2), [V20.B16, V21.B16, V22.B16, V23.B16] \
	VLD1.P 64(R2), [V24.B16, V25.B16, V26.B16, V27.B16]

// LOAD_ZEROS makes V20-V23 the squares [-z0, -z1, -z0, -z1] of the 8 zero points at R7.
#define LOAD_ZEROS \
	VLD1  (R7), [V22.S4, V23.S4] \
	ADD   R9, R7                 \
	VNEG_4S(22, 22)              \
	VNEG_4S(23, 23)              \
	VZIP1 V22.D2, V22.D2, V20.D2 \
	VZIP2 V22.D2, V22.D2, V21.D2 \
	VZIP1 V23.D2, V23.D2, V22.D2 \
	VZIP2 V23.D2, V23.D2, V23.D2

// SQUARE_SUMS makes registers the squares [s0, s0, s1, s1] of the sums of activations.
#define SQUARE_SUMS_8 \
	VLD1.P 32(R8), [V18.S4, V19.S4] \
	VZIP1  V18.S4, V18.S4, V16.S4   \
	VZIP2  V18.S4, V18.S4, V17.S4   \
	VZIP1  V19.S4, V19.S4, V18.S4   \
	VZIP2  V19.S4, V19.S4, V19.S4

#define SQUARE_SUMS_4 \
	VLD1.P 16(R8), [V17.S4]       \
	VZIP1  V17.S4, V17.S4, V16.S4 \
	VZIP2  V17.S4, V17.S4, V17.S4

#define SQUARE_SUMS_2 \
	FMOVD.P 8(R8), F17 \
	VZIP1   V17.S4, V17.S4, V16.S4

// ZERO_POINTS starts the sums of a pair of rows at -zero point * sum of activations.
#define ZERO_POINTS(s, d0, d1, d2, d3) \
	VMUL_4S(20, s, d0) \
	VMUL_4S(21, s, d1) \
	VMUL_4S(22, s, d2) \
	VMUL_4S(23, s, d3)

// ADD_ZERO_POINTS adds -zero point * sum of activations to sums.
#define ADD_ZERO_POINTS(s, d0, d1, d2, d3) \
	VMLA_4S(20, s, d0) \
	VMLA_4S(21, s, d1) \
	VMLA_4S(22, s, d2) \
	VMLA_4S(23, s, d3)

// 8 rows: V0-V15 are sums, V16-V19 and V28-V31 the activations of a step.

#define CLEAR_DOTS_8 \
	CBNZ  R12, symmetric            \
	LOAD_ZEROS                      \
	SQUARE_SUMS_8                   \
	ZERO_POINTS(16, 0, 1, 2, 3)     \
	ZERO_POINTS(17, 4, 5, 6, 7)     \
	ZERO_POINTS(18, 8, 9, 10, 11)   \
	ZERO_POINTS(19, 12, 13, 14, 15) \
	B     cleared                   \
symmetric:                              \
	CLEAR_4(0, 1, 2, 3)             \
	CLEAR_4(4, 5, 6, 7)             \
	CLEAR_4(8, 9, 10, 11)           \
	CLEAR_4(12, 13, 14, 15)         \
cleared:

#define STEP_DOTS_8 \
	VLD1.P 64(R1), [V16.B16, V17.B16, V18.B16, V19.B16] \
	VLD1.P 64(R1), [V28.B16, V29.B16, V30.B16, V31.B16] \
	LOAD_PANEL                                          \
	PANEL_0(16, 0, 1, 2, 3)                             \
	PANEL_0(17, 4, 5, 6, 7)                             \
	PANEL_0(18, 8, 9, 10, 11)                           \
	PANEL_0(19, 12, 13, 14, 15)                         \
	PANEL_1(28, 0, 1, 2, 3)                             \
	PANEL_1(29, 4, 5, 6, 7)                             \
	PANEL_1(30, 8, 9, 10, 11)                           \
	PANEL_1(31, 12, 13, 14, 15)

// 4 rows of activations: V0-V7 are sums, V16-V19 the activations of a step.

#define ZERO_POINTS_4 \
	LOAD_ZEROS                  \
	SQUARE_SUMS_4               \
	ZERO_POINTS(16, 0, 1, 2, 3) \
	ZERO_POINTS(17, 4, 5, 6, 7)

#define STEP_4 \
	VLD1.P 64(R1), [V16.B16, V17.B16, V18.B16, V19.B16] \
	LOAD_PANEL                                          \
	PANEL_0(16, 0, 1, 2, 3)                             \
	PANEL_0(17, 4, 5, 6, 7)                             \
	PANEL_1(18, 0, 1, 2, 3)                             \
	PANEL_1(19, 4, 5, 6, 7)

// 2 rows of activations: V0-V3 are sums, V16-V17 the activations of a step.

#define ZERO_POINTS_2 \
	LOAD_ZEROS    \
	SQUARE_SUMS_2 \
	ZERO_POINTS(16, 0, 1, 2, 3)

#define STEP_2 \
	VLD1.P 32(R1), [V16.B16, V17.B16] \
	LOAD_PANEL                        \
	PANEL_0(16, 0, 1, 2, 3)           \
	PANEL_1(17, 0, 1, 2, 3)
