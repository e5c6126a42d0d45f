package floatmm

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestWords holds each numeric instruction against a disassembler.
func TestWords(t *testing.T) {
	asmtest.Words(t, map[string]string{
		"VFMLA_4S":  "fmla v%[4]s.4s, v%[3]s.4s, v%[2]s.s[%[1]s]",
		"VFADD_4S":  "fadd v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFCMEQ_4S": "fcmeq v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VBIF_16B":  "bif v%[3]s.16b, v%[2]s.16b, v%[1]s.16b",
		"VMVNI_4S":  "mvni v%[1]s.4s, #0xff, msl #8",
	})
}
