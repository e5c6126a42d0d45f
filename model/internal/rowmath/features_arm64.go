//go:build !purego

package rowmath

const implementation = "neon"
