//go:build !purego

package cpu

import "golang.org/x/sys/cpu"

func features() (has []string) {
	x := &cpu.X86
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		has = append(has, AVX2)
		if x.HasAVXVNNI {
			has = append(has, AVXVNNI)
		}
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI {
			has = append(has, AVX512)
		}
	}
	return has
}
