//go:build !purego

package vec

import "golang.org/x/sys/cpu"

const implementation = "avx2"

func supported() []string {
	has := []string{"generic"}
	if cpu.X86.HasAVX2 && cpu.X86.HasF16C {
		has = append(has, "avx2")
		if cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VNNI {
			has = append(has, "avx512vnni")
		}
	}
	return has
}
