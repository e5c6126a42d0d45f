// Products of 8 rows of activations in two halves by SMMLA, see HALVES: the codes of a chunk are in V20-V21 or V28-V29, activations in V16-V19 and
// V24-V27.

#define ZERO_SQUARES_8 \
	VLD1   (R7), [V21.S4]         \
	ADD    R9, R7                 \
	VNEG_4S(21, 21)               \
	VZIP1  V21.D2, V21.D2, V20.D2 \
	VZIP2  V21.D2, V21.D2, V21.D2 \
	SQUARE_SUMS_8

#define ZERO_POINTS_8 \
	ZERO_SQUARES_8     \
	VMUL_4S(20, 16, 0) \
	VMUL_4S(21, 16, 1) \
	VMUL_4S(20, 17, 2) \
	VMUL_4S(21, 17, 3) \
	VMUL_4S(20, 18, 4) \
	VMUL_4S(21, 18, 5) \
	VMUL_4S(20, 19, 6) \
	VMUL_4S(21, 19, 7)

#define STEP_8 \
	VLD1.P 64(R1), [V16.B16, V17.B16, V18.B16, V19.B16] \
	VLD1.P (R2)(R15), [V20.B16, V21.B16]                \
	VLD1.P 64(R1), [V24.B16, V25.B16, V26.B16, V27.B16] \
	VLD1.P (R2)(R15), [V28.B16, V29.B16]                \
	VSMMLA(20, 16, 0)                                   \
	VSMMLA(21, 16, 1)                                   \
	VSMMLA(20, 17, 2)                                   \
	VSMMLA(21, 17, 3)                                   \
	VSMMLA(20, 18, 4)                                   \
	VSMMLA(21, 18, 5)                                   \
	VSMMLA(20, 19, 6)                                   \
	VSMMLA(21, 19, 7)                                   \
	VSMMLA(28, 24, 0)                                   \
	VSMMLA(29, 24, 1)                                   \
	VSMMLA(28, 25, 2)                                   \
	VSMMLA(29, 25, 3)                                   \
	VSMMLA(28, 26, 4)                                   \
	VSMMLA(29, 26, 5)                                   \
	VSMMLA(28, 27, 6)                                   \
	VSMMLA(29, 27, 7)
