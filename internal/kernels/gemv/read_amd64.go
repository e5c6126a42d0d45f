//go:build !purego

package gemv

import "github.com/lowbit-go/gq/internal/cpu"

func init() {
	readers.Register(cpu.AVX2, func(b []byte) uint64 { return readAVX2(&b[0], len(b)) })
	readers.Register(cpu.AVX512, func(b []byte) uint64 { return readAVX512(&b[0], len(b)) })
}
