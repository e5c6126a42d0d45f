package asmtest

import (
	"testing"
	"unsafe"
)

// AtPageEnd copies x to memory that ends where the next page may not be touched, so that assembly that reads or writes
// past its arguments faults. T holds no pointers.
func AtPageEnd[T any](t *testing.T, x []T) []T {
	t.Helper()
	if len(x) == 0 {
		return x
	}
	size := len(x) * int(unsafe.Sizeof(x[0]))
	mem := guarded(t, size)
	y := unsafe.Slice((*T)(unsafe.Pointer(&mem[len(mem)-size])), len(x))
	copy(y, x)
	return y
}
