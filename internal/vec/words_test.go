package vec

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

// mnemonics says for each macro of neon_arm64.h what a disassembler shows of it, see asmtest.Words.
var mnemonics = map[string]string{
	"VFADD_4S":     "fadd v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFSUB_4S":     "fsub v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMUL_4S":     "fmul v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMAX_4S":     "fmax v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMIN_4S":     "fmin v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFADD_2D":     "fadd v%[3]s.2d, v%[2]s.2d, v%[1]s.2d",
	"VSMAX_4S":     "smax v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VUMAXV_4S":    "umaxv s%[2]s, v%[1]s.4s",
	"VFCVTNS_4S":   "fcvtns v%[2]s.4s, v%[1]s.4s",
	"VSCVTF_4S":    "scvtf v%[2]s.4s, v%[1]s.4s",
	"VFCVTL_4S":    "fcvtl v%[2]s.4s, v%[1]s.4h",
	"VFCVTL2_4S":   "fcvtl2 v%[2]s.4s, v%[1]s.8h",
	"VFCVTL_2D":    "fcvtl v%[2]s.2d, v%[1]s.2s",
	"VFCVTL2_2D":   "fcvtl2 v%[2]s.2d, v%[1]s.4s",
	"VFDIV_4S":     "fdiv v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFMAXNM_4S":   "fmaxnm v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFRINTN_4S":   "frintn v%[2]s.4s, v%[1]s.4s",
	"VFSQRT_4S":    "fsqrt v%[2]s.4s, v%[1]s.4s",
	"VFCMGE_4S":    "fcmge v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFCMGT_4S":    "fcmgt v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VFABD_4S":     "fabd v%[3]s.4s, v%[2]s.4s, v%[1]s.4s",
	"VSMAX_8H":     "smax v%[3]s.8h, v%[2]s.8h, v%[1]s.8h",
	"VSMIN_8H":     "smin v%[3]s.8h, v%[2]s.8h, v%[1]s.8h",
	"VMUL_8H":      "mul v%[3]s.8h, v%[2]s.8h, v%[1]s.8h",
	"VSQRDMULH_8H": "sqrdmulh v%[3]s.8h, v%[2]s.8h, v%[1]s.8h",
	"VSQADD_8H":    "sqadd v%[3]s.8h, v%[2]s.8h, v%[1]s.8h",
	"VSSHL_8H":     "sshl v%[3]s.8h, v%[2]s.8h, v%[1]s.8h",
	"VSQSHL2_8H":   "sqshl v%[2]s.8h, v%[1]s.8h, #2",
	"VSMLAL_4S":    "smlal v%[3]s.4s, v%[2]s.4h, v%[1]s.4h",
	"VSMLAL2_4S":   "smlal2 v%[3]s.4s, v%[2]s.8h, v%[1]s.8h",
}

func TestWords(t *testing.T) { asmtest.Words(t, mnemonics) }

// TestNoFusedInstructions: a fused multiply-add rounds once where the portable code rounds twice.
func TestNoFusedInstructions(t *testing.T) {
	asmtest.NotFused(t, "kernels_arm64.s", "fit_arm64.s", "grids_arm64.s", "soft_arm64.s", "kernels_amd64.s", "neon_arm64.h")
}
