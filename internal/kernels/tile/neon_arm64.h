// NEON instructions that Go's assembler lacks. Operands in its order: sources first, m before n, then d. The suffix is
// the destination's arrangement; LANE takes one element i of m. words_test.go decodes each use.

// ARMv8.0.
#define VZERO(d) WORD $(0x6f00e400 | (d))
#define VFADD_4S(m, n, d) WORD $(0x4e20d400 | (m)<<16 | (n)<<5 | (d))
#define VFSUB_4S(m, n, d) WORD $(0x4ea0d400 | (m)<<16 | (n)<<5 | (d))
#define VFMUL_4S(m, n, d) WORD $(0x6e20dc00 | (m)<<16 | (n)<<5 | (d))
#define VFMULLANE_4S(i, m, n, d) WORD $(0x4f809000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))
#define VFMLALANE_4S(i, m, n, d) WORD $(0x4f801000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))
#define VFCMEQ_4S(m, n, d) WORD $(0x4e20e400 | (m)<<16 | (n)<<5 | (d))
#define VSCVTF_4S(n, d) WORD $(0x4e21d800 | (n)<<5 | (d))
#define VUSHL_4S(m, n, d) WORD $(0x6ea04400 | (m)<<16 | (n)<<5 | (d))
#define VNEG_4S(n, d) WORD $(0x6ea0b800 | (n)<<5 | (d))
#define VMUL_4S(m, n, d) WORD $(0x4ea09c00 | (m)<<16 | (n)<<5 | (d))
#define VMULLANE_4S(i, m, n, d) WORD $(0x4f808000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))
#define VMLA_4S(m, n, d) WORD $(0x4ea09400 | (m)<<16 | (n)<<5 | (d))
#define VMLALANE_4S(i, m, n, d) WORD $(0x6f800000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))
#define VMLSLANE_4S(i, m, n, d) WORD $(0x6f804000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))
#define VSMULL_8H(m, n, d) WORD $(0x0e20c000 | (m)<<16 | (n)<<5 | (d))
#define VSMULL2_8H(m, n, d) WORD $(0x4e20c000 | (m)<<16 | (n)<<5 | (d))
#define VSMLAL_8H(m, n, d) WORD $(0x0e208000 | (m)<<16 | (n)<<5 | (d))
#define VSMLAL2_8H(m, n, d) WORD $(0x4e208000 | (m)<<16 | (n)<<5 | (d))
#define VSADALP_4S(n, d) WORD $(0x4e606800 | (n)<<5 | (d))

// ARMv8.0. Go's assembler has these; macros need them with registers given by number.
#define VBIF_16B(m, n, d) WORD $(0x6ee01c00 | (m)<<16 | (n)<<5 | (d))
#define VADDP_4S(m, n, d) WORD $(0x4ea0bc00 | (m)<<16 | (n)<<5 | (d))
#define VFMADD_4S(m, n, d) WORD $(0x4e20cc00 | (m)<<16 | (n)<<5 | (d))
#define VZIPLOW_2D(m, n, d) WORD $(0x4ec03800 | (m)<<16 | (n)<<5 | (d))
#define VZIPHIGH_2D(m, n, d) WORD $(0x4ec07800 | (m)<<16 | (n)<<5 | (d))

// ARMv8.2 DotProd: each 4 bytes of n times the same 4 bytes of m, or times bytes 4i to 4i+3 of m.
#define VSDOT(m, n, d) WORD $(0x4e809400 | (m)<<16 | (n)<<5 | (d))
#define VSDOTLANE(i, m, n, d) WORD $(0x4f80e000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))

// ARMv8.6 I8MM: the 2 rows of 8 bytes of n times the 2 rows of m, a 2 x 2 result.
#define VSMMLA(m, n, d) WORD $(0x4e80a400 | (m)<<16 | (n)<<5 | (d))
