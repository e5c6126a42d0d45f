//go:build !purego

package act

const implementation = "neon"
