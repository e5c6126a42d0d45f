//go:build !unix

package asmtest

import "testing"

// guarded is plain memory: accesses beside it are found on other systems.
func guarded(_ testing.TB, size int) []byte { return make([]byte, size) }
