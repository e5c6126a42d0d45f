package gqf

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/mmap"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/packing/kleidiai"
	"github.com/lowbit-go/gq/packing/layouts"
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

	views []View // of the payloads, if the data lie in another file; else nil
	guard func(fn func() error) error

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

// Release takes the mapped pages of the file out of the memory of this process, until they are read
// again. Only Linux counts less memory then.
func (f *File) Release() {
	if f.m != nil {
		f.m.Release(0, f.m.Size())
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
	if f.views != nil {
		return f.guard(fn)
	}
	err := mmap.Guard(fn)
	if fault, ok := errors.AsType[*mmap.FaultError](err); ok && f.m != nil && fault.Name == f.m.Name() {
		return &FormatError{File: f.name, Offset: fault.Offset, Msg: "cannot be read any more: the file was truncated while it was in use, or its disk failed"}
	}
	return err
}

func (f *File) Size() int64 { return int64(f.h.fileSize) }

func (f *File) Version() (major, minor int) { return int(f.h.major), int(f.h.minor) }

// Rows reads the rows of a slice of a quantized tensor in any layout, from views of the file: call
// its methods inside [File.Guard]. Many goroutines may use a Rows at once.
type Rows struct {
	packing.Packer        // includes the companions, if the layout has any
	data           []byte // data of the payload
}

// Rows returns the rows of a slice of a variant. A damaged file is a [*FormatError], and so is an
// unquantized tensor (layout plain).
func (t Tensor) Rows(variant, slice int) (*Rows, error) {
	p, ok := t.Payload(variant, slice, KindWeights)
	if !ok {
		if err := t.Usable(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: tensor %q has no variant %d of slice %d", t.f.name, t.Name, variant, slice)
	}
	if v := t.f.View(p); v != nil && p.Header.Layout == packing.LayoutBlocks {
		return &Rows{newBlockRows(p.Header, v), nil}, nil
	}
	data, err := t.f.Data(p)
	if err != nil {
		return nil, err
	}
	pk, err := layouts.New(p.Header)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", t.f.name, t.Name, err)
	}
	scales, zeros, err := t.Companions(variant, slice)
	if err != nil {
		return nil, err
	}
	if pk, err = layouts.WithCompanions(pk, scales, zeros); err != nil {
		return nil, &FormatError{File: t.f.name, Section: "payloads", Msg: fmt.Sprintf("companions of tensor %q", t.Name), Err: err}
	}
	return &Rows{pk, data}, nil
}

// Companions returns the data of the companions of a slice's weights, in place; nil if absent.
func (t Tensor) Companions(variant, slice int) (scales, zeros []byte, err error) {
	if p, ok := t.Payload(variant, slice, KindScales); ok {
		scales, err = t.f.Data(p)
	}
	if p, ok := t.Payload(variant, slice, KindZeros); ok && err == nil {
		zeros, err = t.f.Data(p)
	}
	return scales, zeros, err
}

// Codes reads the codes, scales and zero points of a row, see packing.Packer.Row. Zero points are
// in units of Header().ZeroUnit().
func (r *Rows) Codes(codes []int8, scales []float32, zeros []int8, row int) {
	r.Row(codes, scales, zeros, r.data, row)
}

// FloatZeros reads the stored zero points of a row in a layout with floating-point zero points
// (packing.ZeroF32), and panics for any other layout.
func (r *Rows) FloatZeros(dst []float32, row int) {
	r.Packer.(*kleidiai.Packer).FloatZeros(dst, r.data, row)
}

// HasNonIntegerZeros reports whether some zero point is not an integer times the scale, see
// packing.IntegerZero: only possible in a layout with floating-point zero points. Rows are read up
// to the first such zero point.
func (r *Rows) HasNonIntegerZeros() bool {
	h := r.Header()
	if h.ZeroKind != packing.ZeroF32 {
		return false
	}
	scales, zeros := make([]float32, r.Groups()), make([]float32, r.Groups())
	for row := range int(h.Rows) {
		r.Codes(nil, scales, nil, row)
		r.FloatZeros(zeros, row)
		for g, zero := range zeros {
			if _, whole := packing.IntegerZero(zero, scales[g]); !whole {
				return true
			}
		}
	}
	return false
}

// Dequantize reads the weights of a row.
func (r *Rows) Dequantize(dst []float32, row int) { r.DequantizeRow(dst, r.data, row) }

// RowBias reads the bias of a row.
func (r *Rows) RowBias(row int) float32 { return r.Bias(r.data, row) }

// FormatError reports where and why a file is not a valid .gqf file.
type FormatError struct {
	File    string // path as given to Open; empty for OpenBytes
	Section string // "header", the name of a front section, "front gap", "data", or empty
	Offset  int64  // byte offset of the error in the file
	Msg     string // describes the defect
	Err     error  // cause, or nil
}

func (e *FormatError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		b.WriteString(": ")
	}
	fmt.Fprintf(&b, "byte %d", e.Offset)
	if e.Section != "" {
		fmt.Fprintf(&b, " (%s)", e.Section)
	}
	b.WriteString(": ")
	b.WriteString(e.Msg)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

func (e *FormatError) Unwrap() error { return e.Err }

// ForeignError reports a file that does not begin like a .gqf file.
type ForeignError struct {
	File   string // path as given to Open; empty for OpenBytes
	What   string // the kind of file, with an article: "a GGUF file"
	Advice string // how to proceed; may be empty
}

func (e *ForeignError) Error() string {
	s := "this is " + e.What + ", not a .gqf file"
	if e.Advice != "" {
		s += ": " + e.Advice
	}
	if e.File != "" {
		s = e.File + ": " + s
	}
	return s
}

// UnsupportedError reports a file that may be valid, but that this reader does not read: the file
// has a newer version or exceeds a limit of [Options].
type UnsupportedError struct {
	File string // path as given to Open; empty for OpenBytes
	Msg  string // the unsupported feature and how to proceed
}

func (e *UnsupportedError) Error() string {
	if e.File == "" {
		return e.Msg
	}
	return e.File + ": " + e.Msg
}

// noAssetError reports that a file has no asset of this name; errors.Is finds fs.ErrNotExist.
type noAssetError struct{ File, Asset string }

func (e *noAssetError) Error() string {
	return fmt.Sprintf("%s: no asset %q in this file", e.File, e.Asset)
}

func (e *noAssetError) Unwrap() error { return fs.ErrNotExist }
