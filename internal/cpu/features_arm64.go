//go:build !purego

package cpu

import "golang.org/x/sys/cpu"

// features needs no test for NEON: Go on arm64 requires NEON. Every CPU with i8mm has dot products.
func features() []string {
	has := []string{NEON}
	if cpu.ARM64.HasASIMDDP {
		has = append(has, DotProd)
		if cpu.ARM64.HasI8MM {
			has = append(has, I8MM)
		}
	}
	return has
}
