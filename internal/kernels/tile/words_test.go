package tile

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestWords holds each numeric instruction against a disassembler.
func TestWords(t *testing.T) {
	asmtest.Words(t, map[string]string{
		"VZERO":        "movi v%[1]s.2d, #0x0",
		"VFADD_4S":     "fadd v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFSUB_4S":     "fsub v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMUL_4S":     "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMULLANE_4S": "fmul v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
		"VFMLALANE_4S": "fmla v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
		"VFCMEQ_4S":    "fcmeq v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VSCVTF_4S":    "scvtf v%[2]s.4s, v%[1]s.4s",
		"VNEG_4S":      "neg v%[2]s.4s, v%[1]s.4s",
		"VMUL_4S":      "mul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VMULLANE_4S":  "mul v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
		"VMLA_4S":      "mla v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VMLALANE_4S":  "mla v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
		"VUSHL_4S":     "ushl v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VMLSLANE_4S":  "mls v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
		"VSMULL_8H":    "smull v%[3]s.8h, v%[2]s.8b, v%[1]s.8b",
		"VSMULL2_8H":   "smull2 v%[3]s.8h, v%[2]s.16b, v%[1]s.16b",
		"VSMLAL_8H":    "smlal v%[3]s.8h, v%[2]s.8b, v%[1]s.8b",
		"VSMLAL2_8H":   "smlal2 v%[3]s.8h, v%[2]s.16b, v%[1]s.16b",
		"VSADALP_4S":   "sadalp v%[2]s.4s, v%[1]s.8h",
		"VBIF_16B":     "bif v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VADDP_4S":     "addp v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMADD_4S":    "fmla v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VZIPLOW_2D":   "zip1 v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
		"VZIPHIGH_2D":  "zip2 v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
		"VSDOT":        "sdot v%[3]s.4s, v%[2]s.16b, v%[1]s.16b",
		"VSDOTLANE":    "sdot v%[4]s.4s, v%[3]s.16b, v%[2]s.4b[%[1]s]",
		"VSMMLA":       "smmla v%[3]s.4s, v%[2]s.16b, v%[1]s.16b",
	})
}
