//go:build purego || !(amd64 || arm64)

package gemv

// Kernels lists all kernels of this build: none without assembly.
func Kernels() []Kernel { return nil }
