package mmap

import (
	"errors"
	"hash/crc32"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
)

// sum reads every byte of b. Were it inlined, the compiler would drop the reads where
// nobody uses the result.
//
//go:noinline
func sum(b []byte) (s int) {
	for _, x := range b {
		s += int(x)
	}
	return s
}

// TestTruncated shortens a file under its map and reads the lost part, in plain Go
// and in the assembly of memmove and crc32.
func TestTruncated(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows refuses to shorten a mapped file")
	}
	page := int64(os.Getpagesize())
	table := crc32.MakeTable(crc32.Castagnoli)
	for name, read := range map[string]func([]byte){
		"loop":    func(b []byte) { sum(b) },
		"memmove": func(b []byte) { copy(make([]byte, len(b)), b) },
		"crc32":   func(b []byte) { crc32.Update(0, table, b) },
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := write(t, int(4*page))
			f := open1(t, path)
			if err := os.Truncate(path, page+1); err != nil {
				t.Fatal(err)
			}
			err := Guard(func() error {
				read(f.Bytes())
				return nil
			})
			var fault *FaultError
			if !errors.As(err, &fault) {
				t.Fatalf("error %v, want a FaultError", err)
			}
			if fault.Name != path {
				t.Errorf("file %q, want %q", fault.Name, path)
			}
			if fault.Addr == 0 { // as under qemu-user
				if fault.Offset != page+1 {
					t.Errorf("fault at byte %d without an address, want %d", fault.Offset, page+1)
				}
				return
			}
			// The page that holds the new end is still there. Assembly need not read in ascending order.
			if fault.Offset < 2*page || fault.Offset >= 4*page || name == "loop" && fault.Offset != 2*page {
				t.Errorf("fault at byte %d, want %d or later", fault.Offset, 2*page)
			}
			if off, ok := f.Contains(fault.Addr); !ok || off != fault.Offset {
				t.Errorf("Contains(%#x) = %d, %v, want %d", fault.Addr, off, ok, fault.Offset)
			}
		})
	}
}

func TestTruncatedManyGoroutines(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows refuses to shorten a mapped file")
	}
	page := os.Getpagesize()
	path, _ := write(t, 4*page)
	f := open1(t, path)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				err := Guard(func() error {
					sum(f.Bytes()[i*page/32:])
					return nil
				})
				var fault *FaultError
				if !errors.As(err, &fault) || fault.Addr != 0 && fault.Offset != int64(i*page/32) {
					t.Errorf("error %v, want a FaultError at %d", err, i*page/32)
					return
				}
			}
		})
	}
	// Meanwhile other files come and go.
	other, _ := write(t, page)
	for range 100 {
		o, err := Open(other)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

func TestGuardPassesErrors(t *testing.T) {
	want := errors.New("x")
	if err := Guard(func() error { return want }); err != want {
		t.Errorf("got %v", err)
	}
	if err := Guard(func() error { return nil }); err != nil {
		t.Errorf("got %v", err)
	}
}

// TestGuardPassesPanics has panics that are bugs: none becomes an error.
func TestGuardPassesPanics(t *testing.T) {
	unmapped := func() {
		path, _ := write(t, 100)
		f := open1(t, path)
		b := f.Bytes()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		sum(b)
	}
	var none *[1 << 20]byte
	for name, fn := range map[string]func(){
		"value":             func() { panic("x") },
		"nil":               func() { none[0]++ },
		"nil, large offset": func() { none[1<<20-1]++ },
		"index":             func() { _ = make([]int, 1)[sum([]byte{5})] },
		"use after Close":   unmapped,
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not pass through")
				}
			}()
			err := Guard(func() error { fn(); return nil })
			t.Errorf("Guard returned %v", err)
		})
	}
}

func TestGuardRestoresSetting(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(false))
	for _, before := range []bool{false, true} {
		debug.SetPanicOnFault(before)
		_ = Guard(func() error { return nil })
		if got := debug.SetPanicOnFault(before); got != before {
			t.Errorf("after a return: %v, want %v", got, before)
		}
		func() {
			defer func() { _ = recover() }()
			_ = Guard(func() error { panic("x") })
		}()
		if got := debug.SetPanicOnFault(before); got != before {
			t.Errorf("after a panic: %v, want %v", got, before)
		}
	}
}

// TestGuardNested has the inner Guard take the fault and the outer one stay armed.
func TestGuardNested(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows refuses to shorten a mapped file")
	}
	path, _ := write(t, os.Getpagesize())
	f := open1(t, path)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	var inner error
	outer := Guard(func() error {
		inner = Guard(func() error { sum(f.Bytes()); return nil })
		sum(f.Bytes())
		return nil
	})
	for _, err := range []error{inner, outer} {
		var fault *FaultError
		if !errors.As(err, &fault) || fault.Name != path || fault.Offset != 0 {
			t.Errorf("got %v", err)
		}
	}
}
