package safetensors

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/jsonscan"
	"github.com/lowbit-go/gq/packing"
)

const (
	// maxRank bounds the dimensions of a tensor, as NumPy 2 does (NPY_MAXDIMS).
	maxRank = 64
	// maxMetadata bounds a file's __metadata__ entries: a map takes ten times the bytes in the file.
	maxMetadata = 65536
)

// The loader allocates chunks of this many tensors, dimensions and bytes of names. The loader never
// copies chunks to grow, and allocates at most a chunk of each (80 KB together) more than the
// header justifies.
const (
	tensorChunk = 512
	dimChunk    = 2048
	nameChunk   = 16384
)

// A loader collects the tensors of all files of a checkpoint.
type loader struct {
	opts   Options
	chunks [][]Tensor // chunks of tensorChunk tensors, the last chunk shorter
	count  int
	dims   []int64 // memory for shapes: cap-len is free
	names  *strings.Builder
	dtype  packing.Dtype // of the last tensor, with its name: the next tensor mostly
	spelt  string        // has the same
}

func (l *loader) at(i int) *Tensor { return &l.chunks[i/tensorChunk][i%tensorChunk] }

func (l *loader) add(t Tensor) {
	if l.count%tensorChunk == 0 {
		l.chunks = append(l.chunks, make([]Tensor, 0, tensorChunk))
	}
	last := &l.chunks[len(l.chunks)-1]
	*last = append(*last, t)
	l.count++
}

// keep copies b into a string that shares an allocation with other strings.
func (l *loader) keep(b []byte) string {
	if len(b) > nameChunk/4 {
		return string(b)
	}
	if l.names == nil || l.names.Cap()-l.names.Len() < len(b) {
		l.names = new(strings.Builder)
		l.names.Grow(nameChunk)
	}
	start := l.names.Len()
	l.names.Write(b)
	return l.names.String()[start:]
}

// keepShape copies dims. The result is not nil and has no spare capacity.
func (l *loader) keepShape(dims []int64) []int64 {
	if l.dims == nil || cap(l.dims)-len(l.dims) < len(dims) {
		l.dims = make([]int64, 0, dimChunk)
	}
	start := len(l.dims)
	l.dims = append(l.dims, dims...)
	return l.dims[start:len(l.dims):len(l.dims)]
}

// file adds the tensors of the header in b, the content of file number index, at path.
func (l *loader) file(b []byte, path string, index int) (SourceFile, error) {
	fail := func(format string, args ...any) error {
		return &FormatError{File: path, Msg: fmt.Sprintf(format, args...)}
	}
	if k := files.Recognize(b); k != files.Safetensors && k != files.Unknown && k != files.Empty {
		return SourceFile{}, fail("this is %v, not a safetensors file: %s", k, k.Advice(path))
	}
	if len(b) < 8 {
		return SourceFile{}, fail("the file has %d bytes, fewer than the 8 of the header's length; is this a safetensors file?", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(l.opts.MaxHeaderBytes) {
		if len(b) > headerStart && b[headerStart] != '{' {
			return SourceFile{}, fail("this is a file that begins with %q, not a safetensors file", b[:headerStart])
		}
		return SourceFile{}, fail("the header's length of %d bytes exceeds the limit of %d (Options.MaxHeaderBytes)", n, l.opts.MaxHeaderBytes)
	}
	if n > uint64(len(b)-8) {
		return SourceFile{}, fail("the header's length is %d bytes, but only %d follow; is the file truncated?", n, len(b)-8)
	}
	dataStart := 8 + int64(n)
	text := b[headerStart:dataStart]
	if n == 0 || text[0] != '{' {
		return SourceFile{}, &FormatError{File: path, Offset: headerStart, Msg: "the header does not begin with '{'"}
	}
	s := jsonscan.New(text, func(pos int, msg string) error {
		return &FormatError{File: path, Offset: int64(headerStart + pos), Msg: msg}
	})
	if err := s.CheckUTF8(); err != nil {
		return SourceFile{}, err
	}
	h := header{Scanner: s, loader: l, path: path, file: index, dataStart: dataStart, dataEnd: int64(len(b))}
	first := l.count
	if err := s.Object("the header", h.member); err != nil {
		return SourceFile{}, err
	}
	if err := s.End("the header's object"); err != nil {
		return SourceFile{}, err
	}
	if err := h.covered(first); err != nil {
		return SourceFile{}, err
	}
	return SourceFile{Size: int64(len(b)), HeaderSHA256: sha256.Sum256(b[:dataStart]), Metadata: h.metadata}, nil
}

// headerStart is the offset of a file's header, behind its length.
const headerStart = 8

// A header is the state of reading a header.
type header struct {
	*jsonscan.Scanner
	*loader
	path               string
	file               int
	dataStart, dataEnd int64 // the place of the data in the file
	metadata           map[string]string
	shape              [maxRank]int64 // of the current tensor
}

// integers reads an array of integers and calls add for each.
func (h *header) integers(what string, add func(v int64, at int) error) error {
	return h.Array(what, func(at int) error {
		v, err := h.Integer(what)
		if err != nil {
			return err
		}
		return add(v, at)
	})
}

func (h *header) member(key []byte, at int) error {
	if string(key) == "__metadata__" {
		if h.metadata != nil {
			return h.Fail(at, "__metadata__ appears twice")
		}
		return h.readMetadata()
	}
	if h.count >= h.opts.MaxTensors {
		return h.Fail(at, "the checkpoint has more than %d tensors (Options.MaxTensors)", h.opts.MaxTensors)
	}
	return h.tensor(h.keep(key), at)
}

func (h *header) readMetadata() error {
	h.metadata = map[string]string{}
	return h.Object("__metadata__", func(key []byte, at int) error {
		k := string(key)
		if _, ok := h.metadata[k]; ok {
			return h.Fail(at, "the key %s of __metadata__ appears twice", quote(k))
		}
		if len(h.metadata) == maxMetadata {
			return h.Fail(at, "__metadata__ has more than %d entries", maxMetadata)
		}
		v, err := h.String("a value of __metadata__")
		if err != nil {
			return err
		}
		h.metadata[k] = string(v)
		return nil
	})
}

func (h *header) tensor(name string, at int) error {
	const (
		seenDtype = 1 << iota
		seenShape
		seenOffsets
		seenAll = seenDtype | seenShape | seenOffsets
	)
	t := Tensor{Name: name, File: h.file, at: int64(headerStart + at)}
	var seen, rank, bounds int
	var span [2]int64
	err := h.Object("a tensor's description", func(key []byte, at int) error {
		var field int
		switch string(key) {
		case "dtype":
			field = seenDtype
		case "shape":
			field = seenShape
		case "data_offsets":
			field = seenOffsets
		default:
			return &UnsupportedError{
				File: h.path, Offset: int64(headerStart + at), Tensor: name,
				Msg: "its description has the key " + quote(key) + ", which the format did not have when this program was written",
			}
		}
		if seen&field != 0 {
			return h.Fail(at, "tensor %s has %s twice", quote(name), key)
		}
		seen |= field
		switch field {
		case seenDtype:
			return h.readDtype(&t)
		case seenShape:
			return h.integers("a shape", func(v int64, at int) error {
				if rank == maxRank {
					return h.Fail(at, "tensor %s has more than %d dimensions", quote(name), maxRank)
				}
				h.shape[rank] = v
				rank++
				return nil
			})
		default:
			return h.integers("data_offsets", func(v int64, at int) error {
				if bounds == len(span) {
					return h.Fail(at, "data_offsets of tensor %s has more than 2 numbers", quote(name))
				}
				span[bounds] = v
				bounds++
				return nil
			})
		}
	})
	if err != nil {
		return err
	}
	if seen != seenAll || bounds != len(span) {
		return h.Fail(at, "tensor %s needs dtype, shape and two data_offsets", quote(name))
	}
	t.Shape = h.keepShape(h.shape[:rank])
	if err := h.place(&t, span[0], span[1], at); err != nil {
		return err
	}
	h.add(t)
	return nil
}

func (h *header) readDtype(t *Tensor) error {
	b, err := h.String("a dtype")
	if err != nil {
		return err
	}
	if string(b) != h.spelt {
		h.spelt = string(b)
		h.dtype, _ = packing.ParseDtype(h.spelt)
	}
	t.Dtype, t.DtypeName = h.dtype, h.spelt
	return nil
}

// place checks that begin and end, relative to the start of the data, lie in the file and fit t's
// shape and dtype, and stores both.
func (h *header) place(t *Tensor, begin, end int64, at int) error {
	if length := h.dataEnd - h.dataStart; begin > end || end > length {
		return h.Fail(at, "data_offsets [%d, %d) of tensor %s do not lie in the file's %d bytes of data", begin, end, quote(t.Name), length)
	}
	t.Offset, t.Size = h.dataStart+begin, end-begin
	size, ok := dataSize(t.Dtype, t.Shape)
	switch {
	case !ok:
		return h.Fail(at, "shape %v of tensor %s is too large for any file, or does not fill whole bytes of %s", t.Shape, quote(t.Name), t.DtypeName)
	case t.Dtype != packing.DtypeNone && size != t.Size:
		return h.Fail(at, "tensor %s of shape %v and dtype %s needs %d bytes, but its data_offsets span %d", quote(t.Name), t.Shape, t.DtypeName, size, t.Size)
	}
	return nil
}

// dataSize returns the size of a tensor in bytes, or 0 for an unknown dtype. ok is false if the
// size is not a whole number or exceeds int64, or if the product of the non-zero dimensions exceeds
// int64: if ok is true, every product of some dimensions is safe too.
func dataSize(d packing.Dtype, shape []int64) (size int64, ok bool) {
	product, empty := uint64(1), false
	for _, dim := range shape {
		if dim == 0 {
			empty = true
			continue
		}
		hi, lo := bits.Mul64(product, uint64(dim))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, false
		}
		product = lo
	}
	if empty {
		return 0, true
	}
	hi, lo := bits.Mul64(product, uint64(d.Bits()))
	if lo%8 != 0 || hi >= 4 { // 2^66 bits are 2^63 bytes
		return 0, false
	}
	return int64(hi<<61 | lo>>3), true
}

// covered checks that tensors first and following cover the file's data without overlaps and gaps.
func (h *header) covered(first int) error {
	// Keys, because indices of tensors would miss the cache at each comparison: with sortTensors,
	// opening a shuffled header of 200,000 tensors takes 190 ms instead of 285 (AMD EPYC).
	type key struct {
		offset, size int64
		i            int32
	}
	order := make([]key, h.count-first)
	for i := range order {
		t := h.at(first + i)
		order[i] = key{t.Offset, t.Size, int32(first + i)}
	}
	compare := func(a, b key) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.size, b.size))
	}
	if !slices.IsSortedFunc(order, compare) { // most files are sorted
		slices.SortFunc(order, compare)
	}
	end, last := h.dataStart, ""
	for _, k := range order {
		t := h.at(int(k.i))
		at := int(t.at) - headerStart
		switch {
		case t.Offset < end:
			return h.Fail(at, "the data of tensor %s overlap the data of %s", quote(t.Name), quote(last))
		case t.Offset > end:
			return h.Fail(at, "%d bytes of data before tensor %s belong to no tensor", t.Offset-end, quote(t.Name))
		}
		end, last = t.Offset+t.Size, t.Name
	}
	if end != h.dataEnd {
		return &FormatError{
			File: h.path, Offset: end,
			Msg: "the file goes on after the last tensor's data, up to byte " + itoa(h.dataEnd),
		}
	}
	return nil
}

// A FormatError reports a file that breaks the rules of the format, or contradicts itself or
// another file of its checkpoint.
type FormatError struct {
	File   string // path of the file
	Offset int64  // of the error in the file
	Msg    string // the error
	Err    error  // the cause, or nil
}

func (e *FormatError) Error() string {
	s := fmt.Sprintf("%s: byte %d: %s", e.File, e.Offset, e.Msg)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *FormatError) Unwrap() error { return e.Err }

// An UnsupportedError reports a file that seems well formed but that this package cannot interpret.
type UnsupportedError struct {
	File   string // path of the file
	Offset int64  // of the feature in the file
	Tensor string // name of the tensor
	Msg    string // the unsupported feature
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: byte %d: tensor %s: %s", e.File, e.Offset, quote(e.Tensor), e.Msg)
}

// quote makes a string from a file fit for an error message: escaped, and shortened if very long (a
// header may hold a name of 100 MB).
func quote[S string | []byte](s S) string {
	const longest = 200
	if len(s) > longest {
		return fmt.Sprintf("%q... (%d bytes)", string(s[:longest]), len(s))
	}
	return fmt.Sprintf("%q", string(s))
}
