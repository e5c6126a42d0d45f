package mmap

import (
	"fmt"
	"io/fs"
	"os"
	"unsafe"
)

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
