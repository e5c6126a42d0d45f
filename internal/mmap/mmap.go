package mmap

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"github.com/lowbit-go/gq/internal/files"
)

// A File is a regular file mapped for reading. Its methods may be used by several
// goroutines at once, except that Close must come after all other use.
type File struct {
	name string
	size int64
	stat fs.FileInfo
	data []byte // the whole file with cap == len, nil if empty or closed

	absent bool // a Region's: what cannot be read was not fetched

	once    sync.Once
	reader  *os.File // of ReadAt; nil: not opened yet
	openErr error
}

// Open maps the regular file at path (symbolic links are followed). An empty file gives a File with
// no bytes. Errors are *fs.PathError.
func Open(path string) (*File, error) {
	f, st, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the map holds its own reference to the file
	size := st.Size()
	if size != int64(int(size)) {
		return nil, &fs.PathError{Op: "map", Path: path, Err: fmt.Errorf("%d bytes do not fit in this platform's address space", size)}
	}
	m := &File{name: path, size: size, stat: st}
	if size > 0 {
		data, err := mapFile(f, int(size))
		if err != nil {
			return nil, &fs.PathError{Op: "map", Path: path, Err: err}
		}
		m.data = data[:size:size]
	}
	register(m)
	return m, nil
}

func (f *File) Name() string { return f.name }

func (f *File) Size() int64 { return f.size }

// Bytes returns the file's content; nil for an empty file and after Close. The slice must not be
// written to. See the package comment for its lifetime.
func (f *File) Bytes() []byte { return f.data }

// ReadAt fills p with the file's bytes from off on. For bytes that are read once, reading the file
// is faster than the map: 2.5 GB in the page cache, read and summed in pieces of 256 KiB, took 0.31
// s of CPU time, through the map 0.43 s (EPYC, Linux 6.18), because no pages are mapped and
// unmapped and the sum finds the bytes in the core's cache. The file is opened again for the first
// call; if another file is at the path now, or bytes are missing, ReadAt fails with an
// *fs.PathError. Bytes of a Region are copied from its memory, under Guard.
func (f *File) ReadAt(p []byte, off int64) error {
	if off < 0 || off > f.size || int64(len(p)) > f.size-off {
		return &fs.PathError{Op: "read", Path: f.name, Err: fmt.Errorf("bytes %d to %d of a file of %d bytes", off, off+int64(len(p)), f.size)}
	}
	if len(f.data) == 0 && f.size > 0 {
		return &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrClosed}
	}
	if f.absent {
		copy(p, f.data[off:])
		return nil
	}
	f.once.Do(func() {
		r, st, err := files.Open(f.name)
		if err == nil && (!os.SameFile(st, f.stat) || st.Size() != f.size) {
			r.Close()
			err = &fs.PathError{Op: "read", Path: f.name, Err: errors.New("the file was replaced or changed while it was in use")}
		}
		if f.openErr = err; err == nil {
			f.reader = r
		}
	})
	if f.openErr != nil {
		return f.openErr
	}
	if n, err := f.reader.ReadAt(p, off); n < len(p) {
		if errors.Is(err, io.EOF) {
			err = &fs.PathError{Op: "read", Path: f.name, Err: errors.New("the file was truncated while it was in use")}
		}
		return err
	}
	return nil
}

// Close removes the map. Slices of Bytes must not be read afterwards. Closing twice is fine.
func (f *File) Close() error {
	if f.reader != nil {
		_ = f.reader.Close()
		f.reader = nil
	}
	data := f.data
	if data == nil {
		return nil
	}
	unregister(f) // first: locate reads data of registered files
	f.data = nil
	if err := unmapFile(data); err != nil {
		return &fs.PathError{Op: "unmap", Path: f.name, Err: err}
	}
	return nil
}

// Contains reports whether addr lies in the mapped bytes, and at which offset of the file. The
// memory between the end of the file and the end of its last page does not count.
func (f *File) Contains(addr uintptr) (offset int64, ok bool) {
	if len(f.data) == 0 {
		return 0, false
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
	if addr < base || addr-base >= uintptr(len(f.data)) {
		return 0, false
	}
	return int64(addr - base), true
}

// AdviseSequential tells the system that the n bytes at off will be read in ascending order, so
// that the system reads further ahead. The call is a hint: a range beyond the file is cut, failures
// are ignored, and Windows has no such function.
func (f *File) AdviseSequential(off, n int64) {
	if b := f.pages(off, n); b != nil {
		adviseSequential(b)
	}
}

// AdviseHugePages is a hint to read the n bytes at off from disk in huge pages, as far as not yet
// in memory. Only Linux follows this hint.
func (f *File) AdviseHugePages(off, n int64) {
	if b := f.pages(off, n); b != nil {
		adviseHugePages(b)
	}
}

// Need is a hint to begin to read the n bytes at off from disk, and to return at once.
func (f *File) Need(off, n int64) {
	if b := f.pages(off, n); b != nil && !f.absent {
		willNeed(b)
	}
}

// Release takes the pages of the n bytes at off, and of the bytes before off to a multiple of
// Granule, out of the memory of this process. The pages stay in the system's cache of the file, and
// the next read maps them again, 16 at a time. Other goroutines may read the bytes meanwhile. Only
// Linux releases pages; bytes of a Region stay.
func (f *File) Release(off, n int64) {
	first := off &^ (Granule - 1)
	if b := f.pages(first, n+off-first); b != nil && n > 0 && !f.absent {
		release(b)
	}
}

// pages returns the mapped bytes off .. off+n, cut to the file and extended downwards to the start
// of a page, as madvise requires; nil if there are none.
func (f *File) pages(off, n int64) []byte {
	end := f.size
	if off < 0 || n <= 0 || off >= end || len(f.data) == 0 {
		return nil
	}
	if n < end-off {
		end = off + n
	}
	return f.data[off&^int64(os.Getpagesize()-1) : end]
}

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

// Granule is the unit in which the bytes of a Region come and go: a multiple of every page size.
const Granule = 64 << 10

// A Region is address space for the bytes of a file elsewhere. Absent bytes take no memory and
// never read as zeros: reading them is a fault, and Guard reports the fault.
//
//	b, err := r.Fill(off, n) // memory to write the file's bytes to
//	err = r.Seal(off, n)     // Bytes()[off:off+n] may be read now
//	err = r.Drop(off, n)     // absent again; the memory is given back
//
// Offsets and lengths are multiples of Granule; a range that ends beyond the file is cut. Several
// goroutines may call methods on different ranges at once. Close must come after all other use.
type Region struct{ *File }

// Reserve makes a Region for a file of size bytes. name is the file's name in errors.
func Reserve(name string, size int64) (*Region, error) {
	if size < 0 || size != int64(int(size)) {
		return nil, &fs.PathError{Op: "reserve", Path: name, Err: fmt.Errorf("%d bytes do not fit in this platform's address space", size)}
	}
	m := &File{name: name, size: size, absent: true}
	if size > 0 {
		data, err := reserve(int(size))
		if err != nil {
			return nil, &fs.PathError{Op: "reserve address space for", Path: name, Err: err}
		}
		m.data = data[:size:size]
	}
	register(m)
	return &Region{m}, nil
}

// Fill returns zeroed memory for an absent range. Nobody may read the range before Seal.
func (r *Region) Fill(off, n int64) ([]byte, error) { return r.change("fill", off, n, makeWritable) }

func (r *Region) Seal(off, n int64) error {
	_, err := r.change("seal", off, n, makeReadable)
	return err
}

// Drop makes a range absent and gives its memory back.
func (r *Region) Drop(off, n int64) error {
	_, err := r.change("drop", off, n, makeAbsent)
	return err
}

func (r *Region) change(op string, off, n int64, do func([]byte) error) ([]byte, error) {
	if off < 0 || n <= 0 || off >= r.size || off%Granule != 0 || (n%Granule != 0 && n != r.size-off) || len(r.data) == 0 {
		return nil, fmt.Errorf("%s: cannot %s %d bytes at %d of %d", r.name, op, n, off, r.size)
	}
	b := r.data[off:min(r.size, off+n)]
	if err := do(b); err != nil {
		return nil, &fs.PathError{Op: op, Path: r.name, Err: os.NewSyscallError("memory of the range", err)}
	}
	return b, nil
}

// Close gives the address space back. Closing twice is fine.
func (r *Region) Close() error {
	data := r.data
	if data == nil {
		return nil
	}
	unregister(r.File)
	r.data = nil
	if err := unreserve(data); err != nil {
		return &fs.PathError{Op: "release address space of", Path: r.name, Err: err}
	}
	return nil
}

// base is the address of b. The bytes of b may be unreadable.
func base(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
