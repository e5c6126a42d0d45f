// NEON instructions of ARMv8.0 that Go's assembler lacks. Operands in its order: sources first, m before n, then d.
// The suffix is the destination's arrangement. words_test.go decodes each use.

// d += n * m[i], rounded once
#define VFMLA_4S(i, m, n, d) WORD $(0x4f801000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))
#define VFADD_4S(m, n, d) WORD $(0x4e20d400 | (m)<<16 | (n)<<5 | (d))
#define VFCMEQ_4S(m, n, d) WORD $(0x4e20e400 | (m)<<16 | (n)<<5 | (d))
// d = m where n is 0
#define VBIF_16B(n, m, d) WORD $(0x6ee01c00 | (n)<<16 | (m)<<5 | (d))
// 0xffff0000 in each word
#define VMVNI_4S(d) WORD $(0x6f07c7e0 | (d))
