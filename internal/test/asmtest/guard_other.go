//go:build !unix

package asmtest

import "testing"

// guarded is plain memory: other systems find accesses outside.
func guarded(_ testing.TB, size int) []byte { return make([]byte, size) }
