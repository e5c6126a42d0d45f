//go:build !unix

package asmtest

import "testing"

// guarded is plain memory: accesses past its end are found on other systems.
func guarded(_ *testing.T, size int) []byte { return make([]byte, size) }
