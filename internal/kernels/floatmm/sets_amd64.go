//go:build !purego

package floatmm

import "github.com/lowbit-go/gq/internal/cpu"

// The AVX-512 kernels only need AVX512F.
func init() {
	Sets.Register(cpu.AVX2, &avx2)
	Sets.Register(cpu.AVX512, &avx512)
}

var avx2 = Set{
	Feature: cpu.AVX2, NR: 16, Group: 4, Tiles: []int{6, 4, 2, 1},
	f32:       kernels{[]tileKernel{tile6AVX2, tile4AVX2, tile2AVX2, tile1AVX2}, groupAVX2},
	bf16:      kernels{[]tileKernel{tile6BF16AVX2, tile4BF16AVX2, tile2BF16AVX2, tile1BF16AVX2}, groupBF16AVX2},
	transpose: func(dst *uint32, src *byte, stride, n int) { transposeAVX2(dst, 4*16, src, stride, n) },
}

var avx512 = Set{
	Feature: cpu.AVX512, NR: 32, Group: 4, Tiles: []int{12, 8, 4, 2, 1},
	f32:       kernels{[]tileKernel{tile12AVX512, tile8AVX512, tile4AVX512, tile2AVX512, tile1AVX512}, groupAVX512},
	bf16:      kernels{[]tileKernel{tile12BF16AVX512, tile8BF16AVX512, tile4BF16AVX512, tile2BF16AVX512, tile1BF16AVX512}, groupBF16AVX512},
	transpose: func(dst *uint32, src *byte, stride, n int) { transposeAVX2(dst, 4*32, src, stride, n) },
}
