//go:build purego || !(amd64 || arm64)

package cpu

func features() []string { return nil }
