//go:build !purego

package floatmm

var avx2 = Set{
	Feature: "avx2",
	NR:      16,
	Group:   4,
	Tiles:   []int{6, 4, 2, 1},
	f32: kernels{
		tiles: []tileKernel{tile6AVX2, tile4AVX2, tile2AVX2, tile1AVX2},
		group: groupAVX2,
	},
	bf16: kernels{
		tiles: []tileKernel{tile6BF16AVX2, tile4BF16AVX2, tile2BF16AVX2, tile1BF16AVX2},
		group: groupBF16AVX2,
	},
	transpose: func(dst *uint32, src *byte, stride, n int) { transposeAVX2(dst, 4*16, src, stride, n) },
}

var avx512 = Set{
	Feature: "avx512vnni",
	NR:      32,
	Group:   4,
	Tiles:   []int{12, 8, 4, 2, 1},
	f32: kernels{
		tiles: []tileKernel{tile12AVX512, tile8AVX512, tile4AVX512, tile2AVX512, tile1AVX512},
		group: groupAVX512,
	},
	bf16: kernels{
		tiles: []tileKernel{tile12BF16AVX512, tile8BF16AVX512, tile4BF16AVX512, tile2BF16AVX512, tile1BF16AVX512},
		group: groupBF16AVX512,
	},
	transpose: func(dst *uint32, src *byte, stride, n int) { transposeAVX2(dst, 4*32, src, stride, n) },
}

// assembly returns the Set of an instruction set, nil if there is none here. The AVX-512 kernels need its foundation
// (AVX512F) alone, which avx512vnni includes.
func assembly(feature string) *Set {
	switch feature {
	case "avx2":
		return &avx2
	case "avx512vnni":
		return &avx512
	}
	return nil
}
