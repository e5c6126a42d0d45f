package gemv

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestWords holds each numeric instruction against a disassembler.
func TestWords(t *testing.T) {
	asmtest.Words(t, map[string]string{
		"VSDOT_4S":     "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.16b",
		"VSDOT_4S_0":   "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.4b[0]",
		"VSDOT_4S_1":   "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.4b[1]",
		"VSDOT_4S_2":   "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.4b[2]",
		"VSDOT_4S_3":   "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.4b[3]",
		"VMOVI_2D":     "movi v%[1]s.2d, #0x0",
		"VAND_16B":     "and v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VCMTST_16B":   "cmtst v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VBIF_16B":     "bif v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VSHL_16B":     "shl v%[3]s.16b, v%[2]s.16b, #%[1]s",
		"VUSHR_16B":    "ushr v%[3]s.16b, v%[2]s.16b, #%[1]s",
		"VSSHR_16B":    "sshr v%[3]s.16b, v%[2]s.16b, #%[1]s",
		"VSRI_16B":     "sri v%[3]s.16b, v%[2]s.16b, #%[1]s",
		"VSMULL_8H":    "smull v%[3]s.8h, v%[2]s.8b, v%[1]s.8b",
		"VSMULL2_8H":   "smull2 v%[3]s.8h, v%[2]s.16b, v%[1]s.16b",
		"VSMLAL_8H":    "smlal v%[3]s.8h, v%[2]s.8b, v%[1]s.8b",
		"VSMLAL2_8H":   "smlal2 v%[3]s.8h, v%[2]s.16b, v%[1]s.16b",
		"VSADALP_4S":   "sadalp v%[2]s.4s, v%[1]s.8h",
		"VADDP_8H":     "addp v%[3]s.8h, v%[2]s.8h, v%[1]s.8h",
		"VADDP_4S":     "addp v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VSXTL_8H":     "sxtl v%[2]s.8h, v%[1]s.8b",
		"VSSHLL_8H":    "sshll v%[3]s.8h, v%[2]s.8b, #%[1]s",
		"VSXTL_4S":     "sxtl v%[2]s.4s, v%[1]s.4h",
		"VSXTL2_4S":    "sxtl2 v%[2]s.4s, v%[1]s.8h",
		"VMUL_4S":      "mul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VMLA_4S":      "mla v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VMLS_4S":      "mls v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VMLA_4S_0":    "mla v%[3]s.4s, v%[2]s.4s, v%[1]s.s[0]",
		"VSSHR_4S":     "sshr v%[3]s.4s, v%[2]s.4s, #%[1]s",
		"VSSRA_4S":     "ssra v%[3]s.4s, v%[2]s.4s, #%[1]s",
		"VSMLAL_4S_0":  "smlal v%[3]s.4s, v%[2]s.4h, v%[1]s.h[0]",
		"VSMLAL2_4S_0": "smlal2 v%[3]s.4s, v%[2]s.8h, v%[1]s.h[0]",
		"VSMLSL_4S_0":  "smlsl v%[3]s.4s, v%[2]s.4h, v%[1]s.h[0]",
		"VSMLSL2_4S_0": "smlsl2 v%[3]s.4s, v%[2]s.8h, v%[1]s.h[0]",
		"VSCVTF_4S":    "scvtf v%[2]s.4s, v%[1]s.4s",
		"VSCVTF_4S_F":  "scvtf v%[3]s.4s, v%[2]s.4s, #%[1]s",
		"VFCVTL_4S":    "fcvtl v%[2]s.4s, v%[1]s.4h",
		"VFCVTL2_4S":   "fcvtl2 v%[2]s.4s, v%[1]s.8h",
		"VSHLL_4S":     "shll v%[2]s.4s, v%[1]s.4h, #16",
		"VSHLL2_4S":    "shll2 v%[2]s.4s, v%[1]s.8h, #16",
		"VFADD_4S":     "fadd v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMUL_4S":     "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMUL_4S_0":   "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.s[0]",
		"VFMLA_4S":     "fmla v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMLS_4S":     "fmls v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMLA_4S_0":   "fmla v%[3]s.4s, v%[2]s.4s, v%[1]s.s[0]",
		"VFCMEQ_4S":    "fcmeq v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	})
}
