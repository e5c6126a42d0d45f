// NEON instructions that Go's assembler lacks, or that macros need with registers given by number. Operands in Go's
// order: sources first, m before n, then d; k is a shift; LANE takes element i of m. The suffix is the destination's
// arrangement. words_test.go decodes each use. VSDOT needs the dot product extension, all else is ARMv8.0.

#define VMOVI_2D(d) WORD $(0x6f00e400 | (d))
#define VAND_16B(m, n, d) WORD $(0x4e201c00 | (m)<<16 | (n)<<5 | (d))
#define VORR_16B(m, n, d) WORD $(0x4ea01c00 | (m)<<16 | (n)<<5 | (d))
#define VCMTST_16B(m, n, d) WORD $(0x4e208c00 | (m)<<16 | (n)<<5 | (d))
#define VUSHR_16B(k, n, d) WORD $(0x6f000400 | (16-(k))<<16 | (n)<<5 | (d))
#define VSLI_16B(k, n, d) WORD $(0x6f005400 | (8+(k))<<16 | (n)<<5 | (d))
#define VTBL_16B(m, n, d) WORD $(0x4e000000 | (m)<<16 | (n)<<5 | (d))
#define VUSHL_8H(m, n, d) WORD $(0x6e604400 | (m)<<16 | (n)<<5 | (d))
#define VSHL_4S(k, n, d) WORD $(0x4f005400 | (32+(k))<<16 | (n)<<5 | (d))
#define VSXTL_8H(n, d) WORD $(0x0f08a400 | (n)<<5 | (d))
#define VSXTL2_8H(n, d) WORD $(0x4f08a400 | (n)<<5 | (d))
#define VSXTL_4S(n, d) WORD $(0x0f10a400 | (n)<<5 | (d))
#define VSXTL2_4S(n, d) WORD $(0x4f10a400 | (n)<<5 | (d))
#define VADDP_4S(m, n, d) WORD $(0x4ea0bc00 | (m)<<16 | (n)<<5 | (d))
#define VMUL_4S(m, n, d) WORD $(0x4ea09c00 | (m)<<16 | (n)<<5 | (d))
#define VMLA_4S(m, n, d) WORD $(0x4ea09400 | (m)<<16 | (n)<<5 | (d))
#define VMLALANE_4S(i, m, n, d) WORD $(0x6f800000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))
#define VSCVTF_4S(n, d) WORD $(0x4e21d800 | (n)<<5 | (d))
#define VFCVTL_4S(n, d) WORD $(0x0e217800 | (n)<<5 | (d))
#define VFMUL_4S(m, n, d) WORD $(0x6e20dc00 | (m)<<16 | (n)<<5 | (d))
#define VFMLA_4S(m, n, d) WORD $(0x4e20cc00 | (m)<<16 | (n)<<5 | (d))
#define VFMLS_4S(m, n, d) WORD $(0x4ea0cc00 | (m)<<16 | (n)<<5 | (d))
#define VFCMEQ_4S(m, n, d) WORD $(0x4e20e400 | (m)<<16 | (n)<<5 | (d))
// d = n where m has bits of 0
#define VBIF_16B(m, n, d) WORD $(0x6ee01c00 | (m)<<16 | (n)<<5 | (d))
