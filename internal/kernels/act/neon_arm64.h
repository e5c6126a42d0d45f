// NEON instructions of ARMv8.0 that Go's assembler lacks. Operands in its order: sources first, m before n, then d.
// The suffix is the destination's arrangement. words_test.go decodes each use.

#define VFMUL_4S(m, n, d) WORD $(0x6e20dc00 | (m)<<16 | (n)<<5 | (d))
#define VFCVTAS_4S(n, d) WORD $(0x4e21c800 | (n)<<5 | (d))
#define VFCVTNS_4S(n, d) WORD $(0x4e21a800 | (n)<<5 | (d))
#define VSQXTN_4H(n, d) WORD $(0x0e614800 | (n)<<5 | (d))
#define VSQXTN2_8H(n, d) WORD $(0x4e614800 | (n)<<5 | (d))
#define VSQXTN_8B(n, d) WORD $(0x0e214800 | (n)<<5 | (d))
#define VSQXTN2_16B(n, d) WORD $(0x4e214800 | (n)<<5 | (d))
#define VSQADD_8H(m, n, d) WORD $(0x4e600c00 | (m)<<16 | (n)<<5 | (d))
#define VSADDLP_8H(n, d) WORD $(0x4e202800 | (n)<<5 | (d))
#define VSADALP_4S(n, d) WORD $(0x4e606800 | (n)<<5 | (d))
