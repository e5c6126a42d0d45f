package rowmath

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// TestWords decodes each instruction that kernels_arm64.s writes as a number.
func TestWords(t *testing.T) {
	asmtest.Words(t, map[string]string{
		"VFADD_4S":   "fadd v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMUL_4S":   "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFSUB_4S":   "fsub v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMAX_4S":   "fmax v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
		"VFMAXV_4S":  "fmaxv s%[2]s, v%[1]s.4s",
		"VFADD_2D":   "fadd v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
		"VFSUB_2D":   "fsub v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
		"VFMUL_2D":   "fmul v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
		"VFDIV_2D":   "fdiv v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
		"VFMAX_2D":   "fmax v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
		"VFMIN_2D":   "fmin v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
		"VFCVTL_2D":  "fcvtl v%[2]s.2d, v%[1]s.2s",
		"VFCVTL2_2D": "fcvtl2 v%[2]s.2d, v%[1]s.4s",
		"VFCVTN_2D":  "fcvtn v%[2]s.2s, v%[1]s.2d",
		"VFCVTN2_2D": "fcvtn2 v%[2]s.4s, v%[1]s.2d",
		"VADD_2D":    "add v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
		"VSHL_2D_52": "shl v%[2]s.2d, v%[1]s.2d, #52",
	})
}

// TestNoFusedInstructions: a fused multiply-add rounds once, the portable code twice.
func TestNoFusedInstructions(t *testing.T) {
	asmtest.NotFused(t, "kernels_arm64.s", "kernels_amd64.s", "neon_arm64.h")
}
