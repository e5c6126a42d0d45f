//go:build !purego

package gemv

import "github.com/lowbit-go/gq/kernels/internal/cpu"

func readSum(b []byte) uint64 {
	switch cpu.Best() {
	case "avx512vnni":
		return readAVX512(&b[0], len(b))
	case "avx2":
		return readAVX2(&b[0], len(b))
	}
	return readGeneric(b)
}
