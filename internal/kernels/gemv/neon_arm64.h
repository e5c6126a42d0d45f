// NEON instructions that Go's assembler lacks, or that macros need with registers given by number. Operands in Go's
// order: sources first, m before n, then d; k is a shift or an index. The suffix is the destination's arrangement.
// words_test.go decodes each use. VSDOT needs the dot product extension, all else is ARMv8.0.

#define VSDOT_4S(m, n, d) WORD $(0x4e809400 | (m)<<16 | (n)<<5 | (d))
#define VSDOT_4S_0(m, n, d) WORD $(0x4f80e000 | (m)<<16 | (n)<<5 | (d))
#define VSDOT_4S_1(m, n, d) WORD $(0x4fa0e000 | (m)<<16 | (n)<<5 | (d))
#define VSDOT_4S_2(m, n, d) WORD $(0x4f80e800 | (m)<<16 | (n)<<5 | (d))
#define VSDOT_4S_3(m, n, d) WORD $(0x4fa0e800 | (m)<<16 | (n)<<5 | (d))

// d = 0, in the form that llvm-mca counts as free on Neoverse V2: renaming registers does it.
#define VMOVI_2D(d) WORD $(0x6f00e400 | (d))

// bytes
#define VAND_16B(m, n, d) WORD $(0x4e201c00 | (m)<<16 | (n)<<5 | (d))
#define VCMTST_16B(m, n, d) WORD $(0x4e208c00 | (m)<<16 | (n)<<5 | (d))
#define VSHL_16B(k, n, d) WORD $(0x4f005400 | (8+(k))<<16 | (n)<<5 | (d))
#define VUSHR_16B(k, n, d) WORD $(0x6f000400 | (16-(k))<<16 | (n)<<5 | (d))
#define VSSHR_16B(k, n, d) WORD $(0x4f000400 | (16-(k))<<16 | (n)<<5 | (d))
#define VSRI_16B(k, n, d) WORD $(0x6f004400 | (16-(k))<<16 | (n)<<5 | (d))

// 8 products of bytes: of the low halves, of the high halves
#define VSMULL_8H(m, n, d) WORD $(0x0e20c000 | (m)<<16 | (n)<<5 | (d))
#define VSMULL2_8H(m, n, d) WORD $(0x4e20c000 | (m)<<16 | (n)<<5 | (d))
#define VSMLAL_8H(m, n, d) WORD $(0x0e208000 | (m)<<16 | (n)<<5 | (d))
#define VSMLAL2_8H(m, n, d) WORD $(0x4e208000 | (m)<<16 | (n)<<5 | (d))
#define VSADALP_4S(n, d) WORD $(0x4e606800 | (n)<<5 | (d))

// integers of 16 and 32 bits
#define VADDP_8H(m, n, d) WORD $(0x4e60bc00 | (m)<<16 | (n)<<5 | (d))
#define VADDP_4S(m, n, d) WORD $(0x4ea0bc00 | (m)<<16 | (n)<<5 | (d))
#define VSXTL_8H(n, d) WORD $(0x0f08a400 | (n)<<5 | (d))
#define VSSHLL_8H(k, n, d) WORD $(0x0f00a400 | (8+(k))<<16 | (n)<<5 | (d))
#define VSXTL_4S(n, d) WORD $(0x0f10a400 | (n)<<5 | (d))
#define VSXTL2_4S(n, d) WORD $(0x4f10a400 | (n)<<5 | (d))
#define VMUL_4S(m, n, d) WORD $(0x4ea09c00 | (m)<<16 | (n)<<5 | (d))
#define VMLA_4S(m, n, d) WORD $(0x4ea09400 | (m)<<16 | (n)<<5 | (d))
#define VMLS_4S(m, n, d) WORD $(0x6ea09400 | (m)<<16 | (n)<<5 | (d))
#define VMLA_4S_0(m, n, d) WORD $(0x6f800000 | (m)<<16 | (n)<<5 | (d))
#define VSSHR_4S(k, n, d) WORD $(0x4f000400 | (64-(k))<<16 | (n)<<5 | (d))
#define VSSRA_4S(k, n, d) WORD $(0x4f001400 | (64-(k))<<16 | (n)<<5 | (d))

// 4 products of 16 bits with an element 0, of V0-V15: of the low halves, of the high halves
#define VSMLAL_4S_0(m, n, d) WORD $(0x0f402000 | (m)<<16 | (n)<<5 | (d))
#define VSMLAL2_4S_0(m, n, d) WORD $(0x4f402000 | (m)<<16 | (n)<<5 | (d))
#define VSMLSL_4S_0(m, n, d) WORD $(0x0f406000 | (m)<<16 | (n)<<5 | (d))
#define VSMLSL2_4S_0(m, n, d) WORD $(0x4f406000 | (m)<<16 | (n)<<5 | (d))

// float32; VSCVTF_4S_F divides by 2^k, VSHLL is from BF16, VFCVTL from F16
#define VFCVTL_4S(n, d) WORD $(0x0e217800 | (n)<<5 | (d))
#define VFCVTL2_4S(n, d) WORD $(0x4e217800 | (n)<<5 | (d))
#define VSCVTF_4S(n, d) WORD $(0x4e21d800 | (n)<<5 | (d))
#define VSCVTF_4S_F(k, n, d) WORD $(0x4f00e400 | (64-(k))<<16 | (n)<<5 | (d))
#define VSHLL_4S(n, d) WORD $(0x2e613800 | (n)<<5 | (d))
#define VSHLL2_4S(n, d) WORD $(0x6e613800 | (n)<<5 | (d))
#define VFADD_4S(m, n, d) WORD $(0x4e20d400 | (m)<<16 | (n)<<5 | (d))
#define VFMUL_4S(m, n, d) WORD $(0x6e20dc00 | (m)<<16 | (n)<<5 | (d))
#define VFMUL_4S_0(m, n, d) WORD $(0x4f809000 | (m)<<16 | (n)<<5 | (d))
#define VFMLA_4S(m, n, d) WORD $(0x4e20cc00 | (m)<<16 | (n)<<5 | (d))
#define VFMLS_4S(m, n, d) WORD $(0x4ea0cc00 | (m)<<16 | (n)<<5 | (d))
#define VFMLA_4S_0(m, n, d) WORD $(0x4f801000 | (m)<<16 | (n)<<5 | (d))
#define VFCMEQ_4S(m, n, d) WORD $(0x4e20e400 | (m)<<16 | (n)<<5 | (d))

// d = n where m has bits of 0
#define VBIF_16B(m, n, d) WORD $(0x6ee01c00 | (m)<<16 | (n)<<5 | (d))
