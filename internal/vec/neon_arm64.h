// NEON instructions of ARMv8.0 that Go's assembler lacks. Operands in its order: sources first, m before n, then d.
// The suffix is the destination's arrangement (the source's for UMAXV, which stores one S register). words_test.go
// decodes each use.

#define VFADD_4S(m, n, d) WORD $(0x4e20d400 | (m)<<16 | (n)<<5 | (d))
#define VFSUB_4S(m, n, d) WORD $(0x4ea0d400 | (m)<<16 | (n)<<5 | (d))
#define VFMUL_4S(m, n, d) WORD $(0x6e20dc00 | (m)<<16 | (n)<<5 | (d))
#define VFMAX_4S(m, n, d) WORD $(0x4e20f400 | (m)<<16 | (n)<<5 | (d))
#define VFMIN_4S(m, n, d) WORD $(0x4ea0f400 | (m)<<16 | (n)<<5 | (d))
#define VFADD_2D(m, n, d) WORD $(0x4e60d400 | (m)<<16 | (n)<<5 | (d))
#define VSMAX_4S(m, n, d) WORD $(0x4ea06400 | (m)<<16 | (n)<<5 | (d))
#define VUMAXV_4S(n, d) WORD $(0x6eb0a800 | (n)<<5 | (d))
#define VFCVTNS_4S(n, d) WORD $(0x4e21a800 | (n)<<5 | (d))
#define VSCVTF_4S(n, d) WORD $(0x4e21d800 | (n)<<5 | (d))
#define VFCVTL_4S(n, d) WORD $(0x0e217800 | (n)<<5 | (d))
#define VFCVTL2_4S(n, d) WORD $(0x4e217800 | (n)<<5 | (d))
#define VFCVTL_2D(n, d) WORD $(0x0e617800 | (n)<<5 | (d))
#define VFCVTL2_2D(n, d) WORD $(0x4e617800 | (n)<<5 | (d))
#define VFDIV_4S(m, n, d) WORD $(0x6e20fc00 | (m)<<16 | (n)<<5 | (d))
#define VFMAXNM_4S(m, n, d) WORD $(0x4e20c400 | (m)<<16 | (n)<<5 | (d))
#define VFRINTN_4S(n, d) WORD $(0x4e218800 | (n)<<5 | (d))
#define VFSQRT_4S(n, d) WORD $(0x6ea1f800 | (n)<<5 | (d))
