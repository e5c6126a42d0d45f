// What kernels have in common. All take R0 as Args and R1 as Dst; R2 is the panel, R3 its bytes still to come, R4 the
// panels left, R10 the activations to come.

// ENTER begins a function.
#define ENTER()                \
	MOVD a+0(FP), R0       \
	MOVD Args_Dst(R0), R1  \
	MOVD Args_Data(R0), R2 \
	MOVD Args_Panels(R0), R4

// NEXT goes on to the next panel, if there is one, and returns after the last.
#define NEXT()                        \
	MOVD Args_PanelBytes(R0), R14 \
	ADD R14, R2                   \
	SUBS $1, R4                   \
	BNE panel                     \
	RET

// NONE is for kernels without constants.
#define NONE()

// CANONICAL makes any NaN of register d the one that all kernels write.
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

// PAIRS adds up accumulators that hold two rows each, two lanes a row: rows 0-3 to V0, 4-7 to V1.
#define PAIRS()             \
	VADDP_4S(21, 20, 0) \
	VADDP_4S(23, 22, 1)

// ROWS adds up accumulators that hold a row each.
#define ROWS()               \
	VADDP_4S(21, 20, 20) \
	VADDP_4S(23, 22, 21) \
	VADDP_4S(25, 24, 22) \
	VADDP_4S(27, 26, 23) \
	PAIRS()
