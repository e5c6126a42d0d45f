package asmtest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"
)

// An End is a place for an operand of assembly in memory whose next pages, on both sides, may not
// be touched: an access beside the operand faults. A test needs both ends, for accesses behind the
// operand and before it.
type End uint8

const (
	PageEnd   End = iota // the operand's last byte is the last one that may be touched
	PageStart            // the operand's first byte is the first one that may be touched
)

// Ends are both.
var Ends = []End{PageEnd, PageStart}

func (e End) String() string { return [...]string{"page end", "page start"}[e] }

// Place copies x to such memory. T holds no pointers. It is plain memory on systems other than
// unix.
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

// NoFault calls f, whose operands Place placed, and fails the test if f touches memory that it may
// not touch.
func NoFault(t testing.TB, what string, f func()) {
	t.Helper()
	if err := fault(f); err != nil {
		t.Fatalf("%s: memory beside the operands was touched: %v", what, err)
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
			// qemu-user gives some faults without an address, which the runtime takes for a nil
			// pointer.
			err = r
		default:
			panic(r)
		}
	}()
	f()
	return nil
}
