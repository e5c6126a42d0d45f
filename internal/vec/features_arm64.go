//go:build !purego

package vec

import "golang.org/x/sys/cpu"

const implementation = "neon"

// supported needs no test for NEON: Go on arm64 requires it.
func supported() []string {
	has := []string{"generic", "neon"}
	if cpu.ARM64.HasASIMDDP {
		has = append(has, "dotprod")
	}
	if cpu.ARM64.HasI8MM {
		has = append(has, "i8mm")
	}
	return has
}
