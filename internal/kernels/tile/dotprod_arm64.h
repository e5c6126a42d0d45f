// Products by SDOT. Set.Unzip has split 4 rows of codes into a register with the first 4 columns and a register with the
// other 4. SDOT by element multiplies such a register with 4 columns of one row of activations: an accumulator is 4 outputs
// of a row.

// FIRST and OTHER multiply the first and the other 4 columns of two rows of activations, in register a, with the same
// columns of 4 rows of codes. Loads come first, then all FIRST, then all OTHER: in this order in-order cores wait
// least.
#define FIRST(a, w, d0, d1) \
	VSDOTLANE(0, a, w, d0) \
	VSDOTLANE(2, a, w, d1)

#define OTHER(a, w, d0, d1) \
	VSDOTLANE(1, a, w, d0) \
	VSDOTLANE(3, a, w, d1)

// 4 rows of activations: V0, V2, V4 and V6 are sums of the first 4 rows of the panel, V1, V3, V5 and V7 sums of the
// other 4. Activations are in V16-V19.

#define CHUNK_4(a0, a1, w0, x0, w1, x1) \
	FIRST(a0, w0, 0, 2) \
	FIRST(a1, w0, 4, 6) \
	FIRST(a0, w1, 1, 3) \
	FIRST(a1, w1, 5, 7) \
	OTHER(a0, x0, 0, 2) \
	OTHER(a1, x0, 4, 6) \
	OTHER(a0, x1, 1, 3) \
	OTHER(a1, x1, 5, 7)

#define LOAD_PANEL \
	VLD1.P 64(R2), [V20.B16, V21.B16, V22.B16, V23.B16] \
	VLD1.P 64(R2), [V24.B16, V25.B16, V26.B16, V27.B16]

#define STEP_4 \
	VLD1.P 64(R1), [V16.B16, V17.B16, V18.B16, V19.B16] \
	LOAD_PANEL                                          \
	CHUNK_4(16, 17, 20, 21, 22, 23)                     \
	CHUNK_4(18, 19, 24, 25, 26, 27)

// ZERO_POINTS starts sums at -zero point * sum of activations, z holding the negative zero points and s the sums.
#define ZERO_POINTS(z, s, d0, d1, d2, d3) \
	VMULLANE_4S(0, s, z, d0) \
	VMULLANE_4S(1, s, z, d1) \
	VMULLANE_4S(2, s, z, d2) \
	VMULLANE_4S(3, s, z, d3)

// ADD_ZERO_POINTS adds -zero point * sum of activations to sums.
#define ADD_ZERO_POINTS(z, s, d0, d1, d2, d3) \
	VMLALANE_4S(0, s, z, d0) \
	VMLALANE_4S(1, s, z, d1) \
	VMLALANE_4S(2, s, z, d2) \
	VMLALANE_4S(3, s, z, d3)

#define LOAD_ZEROS \
	VLD1 (R7), [V20.S4, V21.S4] \
	ADD  R9, R7                 \
	VNEG_4S(20, 20)             \
	VNEG_4S(21, 21)

#define ZERO_POINTS_4 \
	LOAD_ZEROS                      \
	VLD1.P 16(R8), [V16.S4]         \
	ZERO_POINTS(20, 16, 0, 2, 4, 6) \
	ZERO_POINTS(21, 16, 1, 3, 5, 7)

#define ADD_ZERO_POINTS_4 \
	LOAD_ZEROS                          \
	VLD1.P 16(R8), [V16.S4]             \
	ADD_ZERO_POINTS(20, 16, 0, 2, 4, 6) \
	ADD_ZERO_POINTS(21, 16, 1, 3, 5, 7)

// One row: V0-V1 are sums of the first 4 rows of the panel, V2-V3 sums of the other 4, until SUMS_1 makes V0-V1 the
// sums of the 8 rows. V16 is the activations of a step.

#define CLEAR_1 \
	CLEAR_4(0, 1, 2, 3)

#define STEP_1 \
	FMOVQ.P 16(R1), F16   \
	LOAD_PANEL            \
	VSDOTLANE(0, 16, 20, 0) \
	VSDOTLANE(1, 16, 21, 1) \
	VSDOTLANE(0, 16, 22, 2) \
	VSDOTLANE(1, 16, 23, 3) \
	VSDOTLANE(2, 16, 24, 0) \
	VSDOTLANE(3, 16, 25, 1) \
	VSDOTLANE(2, 16, 26, 2) \
	VSDOTLANE(3, 16, 27, 3)

#define SUMS_1 \
	VADD V1.S4, V0.S4, V0.S4 \
	VADD V3.S4, V2.S4, V1.S4
