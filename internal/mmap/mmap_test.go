package mmap

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// write makes a file of n bytes, byte i being i*7.
func write(t *testing.T, n int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, n)
	for i := range content {
		content[i] = byte(i * 7)
	}
	path = filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func open1(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// TestReadAt reads a file that is mapped, until another one is at its path or it is truncated.
func TestReadAt(t *testing.T) {
	path, content := write(t, 100_000)
	f := open1(t, path)
	got := make([]byte, 50_000)
	for _, off := range []int64{0, 1, 50_000} {
		if err := f.ReadAt(got, off); err != nil || !bytes.Equal(got, content[off:off+50_000]) {
			t.Errorf("at %d: %v", off, err)
		}
	}
	for _, off := range []int64{-1, 50_001, 1 << 62} {
		if err := f.ReadAt(got, off); err == nil {
			t.Errorf("at %d: bytes that are not there were read", off)
		}
	}
	late := open1(t, path)
	if runtime.GOOS != "windows" { // which truncates and replaces no mapped file
		if err := os.Truncate(path, 99_999); err != nil {
			t.Fatal(err)
		}
		if err := f.ReadAt(got, 50_000); err == nil || !strings.Contains(err.Error(), "truncated") {
			t.Errorf("truncated: %v", err)
		}
		if err := late.ReadAt(got, 0); err == nil || !strings.Contains(err.Error(), "replaced or changed") {
			t.Errorf("changed before the first call: %v", err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.ReadAt(got, 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestOpen(t *testing.T) {
	for _, n := range []int{1, 100, os.Getpagesize(), 3*os.Getpagesize() + 17} {
		path, content := write(t, n)
		f := open1(t, path)
		b := f.Bytes()
		if !bytes.Equal(b, content) {
			t.Errorf("%d bytes: wrong content", n)
		}
		if len(b) != n || cap(b) != n || f.Size() != int64(n) || f.Name() != path {
			t.Errorf("%d bytes: len %d, cap %d, size %d, name %q", n, len(b), cap(b), f.Size(), f.Name())
		}
		f.AdviseSequential(0, f.Size())
		f.AdviseSequential(int64(n/2), 1<<62)
		f.AdviseHugePages(0, f.Size())
		f.AdviseSequential(-1, 5)
		f.AdviseSequential(int64(n), 5)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if f.Bytes() != nil || f.Size() != int64(n) {
			t.Errorf("%d bytes: after Close there are %d bytes, size %d", n, len(f.Bytes()), f.Size())
		}
		f.AdviseSequential(0, 1) // after Close: nothing
	}
}

func TestOpenEmpty(t *testing.T) {
	path, _ := write(t, 0)
	f := open1(t, path)
	if f.Bytes() != nil || f.Size() != 0 {
		t.Errorf("bytes %v, size %d", f.Bytes(), f.Size())
	}
	if _, ok := f.Contains(0); ok {
		t.Error("an empty file contains address 0")
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	_, err := Open(dir)
	var pathErr *fs.PathError
	if !errors.As(err, &pathErr) || pathErr.Path != dir || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("directory: %v", err)
	}
}

func TestContains(t *testing.T) {
	path, _ := write(t, 100)
	f := open1(t, path)
	base := uintptr(unsafe.Pointer(&f.Bytes()[0]))
	for _, c := range []struct {
		addr   uintptr
		offset int64
		ok     bool
	}{{base, 0, true}, {base + 99, 99, true}, {base + 100, 0, false}, {base - 1, 0, false}, {0, 0, false}} {
		if offset, ok := f.Contains(c.addr); offset != c.offset || ok != c.ok {
			t.Errorf("base%+d: %d, %v", int64(c.addr-base), offset, ok)
		}
	}
}

func TestPages(t *testing.T) {
	page := int64(os.Getpagesize())
	size := 3*page + 5
	path, _ := write(t, int(size))
	f := open1(t, path)
	for _, c := range []struct{ off, n, start, end int64 }{
		{0, size, 0, size},
		{page + 3, 2, page, page + 5},
		{2 * page, page, 2 * page, 3 * page},
		{size - 1, 1 << 62, 3 * page, size},
	} {
		b := f.pages(c.off, c.n)
		start, ok := f.Contains(uintptr(unsafe.Pointer(&b[0])))
		if !ok || start != c.start || start+int64(len(b)) != c.end {
			t.Errorf("pages(%d, %d) = %d..%d, want %d..%d", c.off, c.n, start, start+int64(len(b)), c.start, c.end)
		}
	}
	if b := f.pages(0, 0); b != nil {
		t.Errorf("no bytes: %d", len(b))
	}
}
