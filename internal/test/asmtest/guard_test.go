//go:build unix

package asmtest

import (
	"os"
	"testing"
	"unsafe"
)

// TestGuard touches every operand's neighbours.
func TestGuard(t *testing.T) {
	for _, e := range Ends {
		for _, n := range []int{1, 7, 5000, os.Getpagesize()} {
			x := Place(t, e, make([]uint16, n))
			at := func(i int) *uint16 { return (*uint16)(unsafe.Add(unsafe.Pointer(&x[0]), 2*i)) }
			var sum uint16
			whole := 2*n%os.Getpagesize() == 0 // at both ends
			for i, outside := range map[int]bool{-1: whole || e == PageStart, 0: false, n - 1: false, n: whole || e == PageEnd} {
				if err := fault(func() { sum += *at(i) }); outside != (err != nil) {
					t.Errorf("%s: reading element %d of %d: %v", e, i, n, err)
				}
				if err := fault(func() { *at(i) = sum }); outside != (err != nil) {
					t.Errorf("%s: writing element %d of %d: %v", e, i, n, err)
				}
			}
		}
	}
}
