//go:build !purego

package act

const implementation = "avx2"
