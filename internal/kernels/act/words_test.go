package act

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestWords holds each numeric instruction against a disassembler.
func TestWords(t *testing.T) {
	asmtest.Words(t, map[string]string{
		"VFMUL_4S":    "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFCVTAS_4S":  "fcvtas v%[2]s.4s, v%[1]s.4s",
		"VFCVTNS_4S":  "fcvtns v%[2]s.4s, v%[1]s.4s",
		"VSQXTN_4H":   "sqxtn v%[2]s.4h, v%[1]s.4s",
		"VSQXTN2_8H":  "sqxtn2 v%[2]s.8h, v%[1]s.4s",
		"VSQXTN_8B":   "sqxtn v%[2]s.8b, v%[1]s.8h",
		"VSQXTN2_16B": "sqxtn2 v%[2]s.16b, v%[1]s.8h",
		"VSQADD_8H":   "sqadd v%[3]s.8h, v%[2]s.8h, v%[1]s.8h",
		"VSADDLP_8H":  "saddlp v%[2]s.8h, v%[1]s.16b",
		"VSADALP_4S":  "sadalp v%[2]s.4s, v%[1]s.8h",
	})
}

// TestNoFusedInstructions: a fused multiply-add rounds once where the portable code rounds twice.
func TestNoFusedInstructions(t *testing.T) {
	asmtest.NotFused(t, "kernels_arm64.s", "kernels_amd64.s", "neon_arm64.h")
}
