package ggml

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestWords holds each numeric instruction against a disassembler.
func TestWords(t *testing.T) {
	asmtest.Words(t, map[string]string{
		"VSDOT_4S":     "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.16b",
		"VMOVI_2D":     "movi v%[1]s.2d, #0x0",
		"VAND_16B":     "and v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VORR_16B":     "orr v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VMOV_16B":     "mov v%[2]s.16b, v%[1]s.16b",
		"VCMTST_16B":   "cmtst v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VBIF_16B":     "bif v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VUSHR_16B":    "ushr v%[3]s.16b, v%[2]s.16b, #%[1]s",
		"VSLI_16B":     "sli v%[3]s.16b, v%[2]s.16b, #%[1]s",
		"VTBL_16B":     "tbl v%[3]s.16b, {v%[2]s.16b}, v%[1]s.16b",
		"VUSHL_8H":     "ushl v%[3]s.8h, v%[2]s.8h, v%[1]s.8h",
		"VSHL_4S":      "shl v%[3]s.4s, v%[2]s.4s, #%[1]s",
		"VSXTL_8H":     "sxtl v%[2]s.8h, v%[1]s.8b",
		"VSXTL2_8H":    "sxtl2 v%[2]s.8h, v%[1]s.16b",
		"VSXTL_4S":     "sxtl v%[2]s.4s, v%[1]s.4h",
		"VSXTL2_4S":    "sxtl2 v%[2]s.4s, v%[1]s.8h",
		"VADDP_4S":     "addp v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VSUB_4S":      "sub v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VMUL_4S":      "mul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VMLA_4S":      "mla v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VMLALANE_4S":  "mla v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
		"VMLSLANE_4S":  "mls v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
		"VFMULLANE_4S": "fmul v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
		"VFMLALANE_4S": "fmla v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
		"VSCVTF_4S":    "scvtf v%[2]s.4s, v%[1]s.4s",
		"VFCVTL_4S":    "fcvtl v%[2]s.4s, v%[1]s.4h",
		"VFMUL_4S":     "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMLA_4S":     "fmla v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMLS_4S":     "fmls v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFCMEQ_4S":    "fcmeq v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VSMULL_8H":    "smull v%[3]s.8h, v%[2]s.8b, v%[1]s.8b",
		"VSMLAL_8H":    "smlal v%[3]s.8h, v%[2]s.8b, v%[1]s.8b",
		"VSMLAL2_8H":   "smlal2 v%[3]s.8h, v%[2]s.16b, v%[1]s.16b",
		"VSADDLP_4S":   "saddlp v%[2]s.4s, v%[1]s.8h",
		"VADD_16B":     "add v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VNEG_16B":     "neg v%[2]s.16b, v%[1]s.16b",
		"VCMHS_16B":    "cmhs v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VBIC_16B":     "bic v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VCMEQ_4S":     "cmeq v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VUMIN_4S":     "umin v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VSMAX_4S":     "smax v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VUSHL_4S":     "ushl v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VUSHR_4S":     "ushr v%[3]s.4s, v%[2]s.4s, #%[1]s",
		"VSADALP_4S":   "sadalp v%[2]s.4s, v%[1]s.8h",
	})
}
