// Bit planes of TorchAO, bitplane.PackUnit, unpacked to the 8 lanes of a unit of 128 codes. EVENn and ODDn take the
// registers of the planes, unpack the even and the odd lanes, and multiply: MUL(a, w, x, y, z) is given activations a and
// the lanes.

// START_SUM starts both accumulators of each row with the group's entry of Sums.
#define START_SUM()              \
	VLD1R.P 4(R11), [V20.S4] \
	VMOV V20.B16, V21.B16    \
	VMOV V20.B16, V22.B16    \
	VMOV V20.B16, V23.B16

// 1 bit: lane j is bit 7-j of the unit's plane. CMTST makes -1 of a stored code of 1, so the dot products are negated.
#define CONSTS1()           \
	VMOVI $128, V24.B16 \
	VMOVI $64, V25.B16  \
	VMOVI $32, V26.B16  \
	VMOVI $16, V27.B16  \
	VMOVI $8, V8.B16    \
	VMOVI $4, V9.B16    \
	VMOVI $2, V10.B16   \
	VMOVI $1, V30.B16   \
	VMOVI $1, V31.B16   \
	VUSHR $8, V31.H8, V31.H8

#define EVEN1(p, MUL, a)          \
	VCMTST_16B(24, p, 2) \
	VCMTST_16B(26, p, 3) \
	VCMTST_16B(8, p, 4)  \
	VCMTST_16B(10, p, 5) \
	MUL(a, 2, 3, 4, 5)

#define ODD1(p, MUL, a)            \
	VCMTST_16B(25, p, 6)  \
	VCMTST_16B(27, p, 7)  \
	VCMTST_16B(9, p, 11)  \
	VCMTST_16B(30, p, 12) \
	MUL(a, 6, 7, 11, 12)

// 5 bits: a plane holds the first lane of a pair and the low 3 bits of the second lane. The fifth plane holds the high
// 2 bits of the second lanes.
#define CONSTS5()            \
	VMOVI $0x1f, V30.B16 \
	VMOVI $16, V31.B16   \
	VUSHR $8, V31.H8, V31.H8

// ODD5 comes first: EVEN5 overwrites the planes.
#define ODD5(p, q, r, s, t, MUL, a) \
	VSHL_16B(6, t, 10)     \
	VSHL_16B(4, t, 11)     \
	VSHL_16B(2, t, 12)     \
	VSRI_16B(2, p, 10)     \
	VSRI_16B(2, q, 11)     \
	VSRI_16B(2, r, 12)     \
	VSRI_16B(2, s, t)      \
	VUSHR_16B(3, 10, 10)   \
	VUSHR_16B(3, 11, 11)   \
	VUSHR_16B(3, 12, 12)   \
	VUSHR_16B(3, t, t)     \
	MUL(a, 10, 11, 12, t)

#define EVEN5(p, q, r, s, MUL, a) \
	VAND_16B(30, p, p)   \
	VAND_16B(30, q, q)   \
	VAND_16B(30, r, r)   \
	VAND_16B(30, s, s)   \
	MUL(a, p, q, r, s)

// 6 bits: three planes hold three lanes, and at their tops 2 bits each of a fourth lane, the lowest bits first.
#define CONSTS6()            \
	VMOVI $0x3f, V30.B16 \
	VMOVI $32, V31.B16   \
	VUSHR $8, V31.H8, V31.H8

// EVEN6 and ODD6 unpack planes p, q, r and x, y, z: the even lanes are p and r, the odd lanes q and the fourth one.
// ODD6 overwrites the planes.
#define EVEN6(p, r, x, z, MUL, a) \
	VAND_16B(30, p, 12)  \
	VAND_16B(30, r, 13)  \
	VAND_16B(30, x, 14)  \
	VAND_16B(30, z, 15)  \
	MUL(a, 12, 13, 14, 15)

#define ODD6(p, q, r, x, y, z, MUL, a) \
	VSRI_16B(2, q, r)         \
	VSRI_16B(2, y, z)         \
	VAND_16B(30, q, q)        \
	VAND_16B(30, y, y)        \
	VSRI_16B(4, p, r)         \
	VSRI_16B(4, x, z)         \
	VUSHR_16B(2, r, r)        \
	VUSHR_16B(2, z, z)        \
	MUL(a, q, r, y, z)

// 7 bits: seven planes hold seven lanes, and at their tops a bit each of the eighth lane, the lowest bit first. The
// bits are collected in v, the seventh plane.
#define CONSTS7()            \
	VMOVI $0x7f, V30.B16 \
	VMOVI $64, V31.B16   \
	VUSHR $8, V31.H8, V31.H8

// ODD7 overwrites the planes.
#define EVEN7(p, r, t, v, MUL, a) \
	VAND_16B(30, r, 14)  \
	VAND_16B(30, t, 15)  \
	VAND_16B(30, v, 24)  \
	VAND_16B(30, p, 25)  \
	MUL(a, 25, 14, 15, 24)

#define ODD7(p, q, r, s, t, u, v, MUL, a) \
	VSRI_16B(1, q, r)            \
	VSRI_16B(1, s, t)            \
	VSRI_16B(1, u, v)            \
	VSRI_16B(2, p, r)            \
	VSRI_16B(2, t, v)            \
	VAND_16B(30, q, q)           \
	VSRI_16B(4, r, v)            \
	VAND_16B(30, s, s)           \
	VAND_16B(30, u, u)           \
	VUSHR_16B(1, v, v)           \
	MUL(a, q, s, u, v)
