//go:build purego || !(amd64 || arm64)

package floatmm

// assembly finds nothing: there is none in this build.
func assembly(string) *Set { return nil }
