//go:build !purego

package rowmath

const implementation = "avx2"
