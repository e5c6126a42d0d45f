package mmap

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

// A FaultError reports mapped bytes that could not be read: the mapped file became shorter, or its
// device failed; or nobody had filled these bytes of a [Region].
type FaultError struct {
	Addr   uintptr // the address that could not be read; 0 if the system gave none that matches
	Name   string  // the file that is mapped there, as given to Open
	Offset int64   // in that file; without an address, the file's present size
	Absent bool    // the bytes are a Region's
}

func (e *FaultError) Error() string {
	if e.Absent {
		return fmt.Sprintf("%s: byte %d was read before it was fetched: this is a defect of the program, please report it", e.Name, e.Offset)
	}
	return fmt.Sprintf("%s: byte %d cannot be read any more: the file was truncated while it was in use, or its device failed", e.Name, e.Offset)
}

// Guard calls fn and returns its error. If fn, in this goroutine, faults on a read of bytes that an
// open File maps, Guard returns a *FaultError. Every other panic passes through, including faults
// at other addresses: these are bugs.
//
// Guards may be nested; the innermost Guard returns the error. fn must release its locks and other
// resources in deferred functions.
func Guard(fn func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		r := recover()
		if r == nil {
			return
		}
		if e := explain(r); e != nil {
			err = e
			return
		}
		panic(r)
	}()
	return fn()
}

// explain turns a recovered panic into a FaultError, or returns nil if no open File is the cause.
func explain(r any) *FaultError {
	rerr, ok := r.(runtime.Error)
	if !ok {
		return nil
	}
	// The documented form of a fault: debug.SetPanicOnFault promises the method.
	if fault, ok := rerr.(interface{ Addr() uintptr }); ok {
		if e := locate(fault.Addr()); e != nil {
			return e
		}
	} else if rerr.Error() != "runtime error: invalid memory address or nil pointer dereference" {
		return nil
	}
	// qemu-user 7.2 delivers SIGBUS with an earlier fault's address, or with address 0: the runtime
	// takes 0 for a nil pointer. A file that shrank tells these faults apart from bugs.
	return shrunk()
}

var open struct {
	sync.Mutex
	files map[*File]struct{}
}

func register(f *File) {
	if f.data == nil {
		return
	}
	open.Lock()
	defer open.Unlock()
	if open.files == nil {
		open.files = make(map[*File]struct{})
	}
	open.files[f] = struct{}{}
}

func unregister(f *File) {
	open.Lock()
	defer open.Unlock()
	delete(open.files, f)
}

// locate finds the open File that maps addr; nil if none does.
func locate(addr uintptr) *FaultError {
	open.Lock()
	defer open.Unlock()
	for f := range open.files {
		if off, ok := f.Contains(addr); ok {
			return &FaultError{Addr: addr, Name: f.name, Offset: off, Absent: f.absent}
		}
	}
	return nil
}

// shrunk finds an open File that is shorter now than its map; nil if there is none.
func shrunk() *FaultError {
	open.Lock()
	defer open.Unlock()
	for f := range open.files {
		if f.absent {
			continue
		}
		if st, err := os.Stat(f.name); err == nil && os.SameFile(st, f.stat) && st.Size() < f.size {
			return &FaultError{Name: f.name, Offset: st.Size()}
		}
	}
	return nil
}
