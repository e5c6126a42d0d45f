//go:build !purego

package vec

import "github.com/lowbit-go/gq/internal/cpu"

func init() {
	accelerated.Register(cpu.AVX2, avx2)
	accelerated.Register(cpu.AVX512, wide)
}
