// Shared by the kernels for nibbles and for bytes, see lowbit_dotprod_arm64.s.

// ACTIVATIONS reads the activations of a block of 32 columns, each 8 of them twice.
#define ACTIVATIONS() \
	VLD1.P 64(R10), [V16.B16, V17.B16, V18.B16, V19.B16]

// DOTS multiplies lanes of the four pairs of rows with activations a.
#define DOTS(a, w, x, y, z) \
	VSDOT_4S(a, w, 20)  \
	VSDOT_4S(a, x, 21)  \
	VSDOT_4S(a, y, 22)  \
	VSDOT_4S(a, z, 23)

// 4 bits: a plane holds two lanes of signed nibbles. Both become codes times 16.
#define CONSTS4() \
	VMOVI $0xf0, V30.B16

#define LOW_NIBBLES(p, q, r, s, w, x, y, z) \
	VSHL_16B(4, p, w)                   \
	VSHL_16B(4, q, x)                   \
	VSHL_16B(4, r, y)                   \
	VSHL_16B(4, s, z)

#define HIGH_NIBBLES(p, q, r, s) \
	VAND_16B(30, p, p)       \
	VAND_16B(30, q, q)       \
	VAND_16B(30, r, r)       \
	VAND_16B(30, s, s)

#define NIBBLES(p, q, r, s, w, x, y, z)     \
	LOW_NIBBLES(p, q, r, s, w, x, y, z) \
	HIGH_NIBBLES(p, q, r, s)

#define BLOCK4()                                        \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	ACTIVATIONS()                                   \
	NIBBLES(0, 1, 2, 3, 8, 9, 10, 11)               \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16] \
	DOTS(16, 8, 9, 10, 11)                          \
	DOTS(18, 0, 1, 2, 3)                            \
	NIBBLES(4, 5, 6, 7, 12, 13, 14, 15)             \
	DOTS(17, 12, 13, 14, 15)                        \
	DOTS(19, 4, 5, 6, 7)

// BLOCK4_LOADS is BLOCK4 for in-order cores. By the model of the Cortex-A55, a load of 4 registers takes 8 cycles and
// makes what follows wait for 11; loads of single registers take a cycle each and 3. Out-of-order cores do not care.
// BLOCK4_LOADS takes 6 instructions more than BLOCK4.
#define BLOCK4_LOADS()                      \
	ACTIVATIONS()                       \
	FMOVQ 16(R3), F1                    \
	FMOVQ 32(R3), F2                    \
	FMOVQ 48(R3), F3                    \
	LOAD4(R3, 64, F4, F5, F6, F7)       \
	FMOVQ.P 128(R3), F0                 \
	NIBBLES(4, 5, 6, 7, 12, 13, 14, 15) \
	NIBBLES(0, 1, 2, 3, 8, 9, 10, 11)   \
	DOTS(16, 8, 9, 10, 11)              \
	DOTS(18, 0, 1, 2, 3)                \
	DOTS(17, 12, 13, 14, 15)            \
	DOTS(19, 4, 5, 6, 7)

// LOAD4 loads the 64 bytes at offset of p, one register at a time.
#define LOAD4(p, offset, d0, d1, d2, d3) \
	FMOVQ (offset)(p), d0    \
	FMOVQ (offset+16)(p), d1 \
	FMOVQ (offset+32)(p), d2 \
	FMOVQ (offset+48)(p), d3

// FIRST4 and SECOND4 multiply the halves of a block, for groups that share it.
#define FIRST4()                                        \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	ACTIVATIONS()                                   \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16] \
	LOW_NIBBLES(0, 1, 2, 3, 8, 9, 10, 11)           \
	DOTS(16, 8, 9, 10, 11)                          \
	LOW_NIBBLES(4, 5, 6, 7, 12, 13, 14, 15)         \
	DOTS(17, 12, 13, 14, 15)

#define SECOND4()                                       \
	VLD1.P 64(R3), [V0.B16, V1.B16, V2.B16, V3.B16] \
	ACTIVATIONS()                                   \
	VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16] \
	HIGH_NIBBLES(0, 1, 2, 3)                        \
	DOTS(18, 0, 1, 2, 3)                            \
	HIGH_NIBBLES(4, 5, 6, 7)                        \
	DOTS(19, 4, 5, 6, 7)
