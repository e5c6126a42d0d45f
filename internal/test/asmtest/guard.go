package asmtest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"
)

// An End is an end of a block of memory between inaccessible pages. An operand of assembly at this
// end faults on an access outside. A test needs both ends, for accesses after and before the
// operand.
type End uint8

const (
	PageEnd   End = iota // the operand's last byte is the last accessible byte
	PageStart            // the operand's first byte is the first accessible byte
)

// Ends are both.
var Ends = []End{PageEnd, PageStart}

func (e End) String() string { return [...]string{"page end", "page start"}[e] }

// Place copies x to such an end. T holds no pointers. On systems other than unix the copy is in
// plain memory.
func Place[T any](t testing.TB, e End, x []T) []T {
	t.Helper()
	if len(x) == 0 {
		return x
	}
	size := len(x) * int(unsafe.Sizeof(x[0]))
	mem, at := guarded(t, size), 0
	if e == PageEnd {
		at = len(mem) - size
	}
	y := unsafe.Slice((*T)(unsafe.Pointer(&mem[at])), len(x))
	copy(y, x)
	return y
}

// AtPageEnd is Place at the PageEnd.
func AtPageEnd[T any](t testing.TB, x []T) []T {
	t.Helper()
	return Place(t, PageEnd, x)
}

// NoFault calls f on operands of Place, and fails the test if f faults.
func NoFault(t testing.TB, what string, f func()) {
	t.Helper()
	if err := fault(f); err != nil {
		t.Fatalf("%s: memory outside the operands was touched: %v", what, err)
	}
}

// fault reports a fault in f.
func fault(f func()) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = fmt.Errorf("at address %#x", r.Addr())
		case runtime.Error:
			// qemu-user reports some faults without an address. The runtime takes these for a nil pointer.
			err = r
		default:
			panic(r)
		}
	}()
	f()
	return nil
}
