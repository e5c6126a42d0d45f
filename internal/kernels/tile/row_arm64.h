// Shared by the products of one row of activations by SDOT. V0-V3 are the sums of a group as STEP_1 leaves them; SUMS_1
// makes V0-V1 the sums of the 8 rows of the panel. V8-V9 are the sums of all groups.

#define ZERO_POINTS_1 \
	VLD1    (R7), [V20.S4, V21.S4] \
	ADD     R9, R7                 \
	FMOVS.P 4(R8), F16             \
	VMLSLANE_4S(0, 16, 20, 0)      \
	VMLSLANE_4S(0, 16, 21, 1)

#define STORE_DOTS_1 \
	SUMS_1              \
	CBNZ R12, symmetric \
	ZERO_POINTS_1       \
symmetric:                  \
	VST1.P [V0.S4, V1.S4], 32(R10)

#define SCALE_1 \
	VSCVTF_4S(0, 0)                 \
	VSCVTF_4S(1, 1)                 \
	VLD1.P 32(R4), [V20.S4, V21.S4] \
	VFMLA  V20.S4, V0.S4, V8.S4     \
	VFMLA  V21.S4, V1.S4, V9.S4

#define FINISH_1 \
	SUMS_1                \
	CBNZ   R12, symmetric \
	ZERO_POINTS_1         \
symmetric:                    \
	SCALE_1

#define FINISH_SHIFTED_1 \
	SUMS_1             \
	VUSHL_4S(31, 0, 0) \
	VUSHL_4S(31, 1, 1) \
	ZERO_POINTS_1      \
	SCALE_1

// ROW makes outputs of the 8 sums f0 and f1 of a row of activations.
#define ROW(f0, f1, lane) \
	FINAL(f0, 20, 22, 24, 25, lane, 26, 27) \
	FINAL(f1, 21, 23, 24, 25, lane, 26, 28)

#define OUT_1 \
	PANEL_NUMBERS    \
	FMOVS (R13), F24 \
	FMOVS (R14), F25 \
	ROW(8, 9, 0)     \
	VST1 [V8.S4, V9.S4], (R10)
