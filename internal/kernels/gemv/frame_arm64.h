// Shared by all kernels. R0 is Args, R1 Dst, R2 the panel, R3 the next bytes of the panel, R4 the number of panels
// left, R10 the next activations.

// ENTER begins a function.
#define ENTER()                \
	MOVD a+0(FP), R0       \
	MOVD Args_Dst(R0), R1  \
	MOVD Args_Data(R0), R2 \
	MOVD Args_Panels(R0), R4

// NEXT moves to the next panel, or returns after the last panel.
#define NEXT()                        \
	MOVD Args_PanelBytes(R0), R14 \
	ADD R14, R2                   \
	SUBS $1, R4                   \
	BNE panel                     \
	RET

// NONE is for kernels without constants.
#define NONE()

// CANONICAL replaces every NaN in register d by the canonical NaN.
#define CANONICAL(d)          \
	MOVW $0x7fc00000, R14 \
	VDUP R14, V6.S4       \
	VFCMEQ_4S(d, d, 7)    \
	VBIF_16B(7, 6, d)

// ZERO8 clears the accumulators V20-V27, ZERO4 the first half of them.
#define ZERO4()      \
	VMOVI_2D(20) \
	VMOVI_2D(21) \
	VMOVI_2D(22) \
	VMOVI_2D(23)

#define ZERO8()      \
	ZERO4()      \
	VMOVI_2D(24) \
	VMOVI_2D(25) \
	VMOVI_2D(26) \
	VMOVI_2D(27)

// PAIRS adds up accumulators with two rows each, two lanes a row: rows 0-3 to V0, rows 4-7 to V1.
#define PAIRS()             \
	VADDP_4S(21, 20, 0) \
	VADDP_4S(23, 22, 1)

// ROWS adds up accumulators with one row each.
#define ROWS()               \
	VADDP_4S(21, 20, 20) \
	VADDP_4S(23, 22, 21) \
	VADDP_4S(25, 24, 22) \
	VADDP_4S(27, 26, 23) \
	PAIRS()
