//go:build purego || !amd64

package gemv

func readSum(b []byte) uint64 { return readGeneric(b) }
