//go:build !purego

package cpu

import "golang.org/x/sys/cpu"

// features needs no test for NEON: Go on arm64 requires it. Kernels for i8mm use dot products too, which every CPU with
// i8mm has.
func features() []string {
	has := []string{"neon"}
	if cpu.ARM64.HasASIMDDP {
		has = append(has, "dotprod")
		if cpu.ARM64.HasI8MM {
			has = append(has, "i8mm")
		}
	}
	return has
}
