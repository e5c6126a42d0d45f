//go:build !purego

package floatmm

import "github.com/lowbit-go/gq/internal/cpu"

func init() { Sets.Register(cpu.NEON, &neon) }

var neon = Set{
	Feature: cpu.NEON, NR: 16, Group: 4, Tiles: []int{6, 4, 2, 1},
	f32:       kernels{[]tileKernel{tile6NEON, tile4NEON, tile2NEON, tile1NEON}, groupNEON},
	bf16:      kernels{[]tileKernel{tile6BF16NEON, tile4BF16NEON, tile2BF16NEON, tile1BF16NEON}, groupBF16NEON},
	transpose: func(dst *uint32, src *byte, stride, n int) { transposeNEON(dst, 4*16, src, stride, n) },
}
