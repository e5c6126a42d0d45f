package gqf

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/mmap"
)

// Options are the limits of a reader against hostile files. The zero value means the defaults.
type Options struct {
	MaxTensors  int // default 1,048,576
	MaxPayloads int // default 1,048,576
	// everything before the data except assets, copied into memory; default 256 MiB
	MaxDirectoryBytes int64
}

func (o Options) withDefaults() Options {
	o.MaxTensors = cmp.Or(o.MaxTensors, 1<<20)
	o.MaxPayloads = cmp.Or(o.MaxPayloads, 1<<20)
	o.MaxDirectoryBytes = cmp.Or(o.MaxDirectoryBytes, 256<<20)
	return o
}

// A File is an open .gqf file. Several goroutines may use a File at once, except that Close must
// come after all other use of Data, Asset, Guard and Verify. The other methods need only memory and
// work after Close too.
type File struct {
	front
	b    []byte     // the whole file
	m    *mmap.File // nil for OpenBytes
	opts Options

	sums atomic.Pointer[sumChecks] // nil until CheckSums

	aliasOnce sync.Once
	aliases   map[int32][]int32 // see Tensor.Names
}

// Open maps the file at path and checks everything but the data region: the returned File is
// consistent. Time and memory depend on the number of tensors and not on their size, because Open
// does not touch the data region. Errors are [*FormatError], [*UnsupportedError], or the operating
// system's.
func Open(path string, opts Options) (*File, error) {
	m, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{front: front{name: path}, b: m.Bytes(), m: m, opts: opts.withDefaults()}
	if err := f.Guard(f.check); err != nil {
		m.Close()
		return nil, err
	}
	return f, nil
}

// AdviseHugePages is a hint for Linux that all weights will be read, again and again. Linux may
// then read weights from disk in huge pages, faster for kernels. The hint has no effect on weights
// in the page cache.
func (f *File) AdviseHugePages() {
	if f.m != nil {
		f.m.AdviseHugePages(int64(f.h.dataOff), int64(f.h.dataLen))
	}
}

// OpenBytes opens a file in memory. b must not change while the File is in use.
func OpenBytes(b []byte, opts Options) (*File, error) {
	f := &File{b: b[:len(b):len(b)], opts: opts.withDefaults()}
	if err := f.check(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) check() error {
	if err := f.checkFrame(f.b, uint64(len(f.b)), f.opts); err != nil {
		return err
	}
	f.copySections()
	if err := f.checkSections(f.b); err != nil {
		return err
	}
	f.packPayloads()
	return f.checkRecords()
}

// Close unmaps the file. Slices that Data returned must not be read afterwards.
func (f *File) Close() error {
	if f.m == nil {
		return nil
	}
	return f.m.Close()
}

// Guard calls fn and returns its error. If fn, in this goroutine, reads bytes that the file has
// lost since Open (the file was shortened, or its disk failed), Guard returns a [*FormatError] with
// their offset; without Guard the program would crash. Guards may be nested. A Guard costs about
// 100 ns.
func (f *File) Guard(fn func() error) error {
	err := mmap.Guard(fn)
	if fault, ok := errors.AsType[*mmap.FaultError](err); ok && f.m != nil && fault.Name == f.m.Name() {
		return &FormatError{File: f.name, Offset: fault.Offset, Msg: "cannot be read any more: the file was truncated while it was in use, or its disk failed"}
	}
	return err
}

func (f *File) Size() int64 { return int64(f.h.fileSize) }

func (f *File) Version() (major, minor int) { return int(f.h.major), int(f.h.minor) }
