package gguf

import (
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/files"
)

// Limits against hostile files. The largest models have some thousand tensors and a hundred keys;
// llama.cpp's limit for strings is the same.
const (
	maxTensors = 1 << 17
	maxPairs   = 1 << 16
	maxString  = 1 << 30 // bytes
)

// Parse reads a file except the data of its tensors. The File refers to data: do not change data
// while the File is in use. A shard gives its own tensors and keys; Open joins shards.
func Parse(data []byte) (*File, error) {
	r := &reader{data: data}
	f := &File{}
	if string(r.take(4, "the magic")) != Magic {
		r.fail(0, "%s", foreign(data))
	}
	if f.Version = r.u32("the version"); r.err == nil && f.Version != 2 && f.Version != 3 {
		r.unsupported(4, "GGUF version %d (%#x): only versions 2 and 3, little-endian, are known", f.Version, f.Version)
	}
	tensors := r.count("tensors", 8+4+4+8, maxTensors)
	pairs := r.count("keys", 8+4+1, maxPairs)
	alignment := f.readPairs(r, pairs)
	start := f.readTensors(r, tensors, alignment)
	if r.err != nil {
		return nil, r.err
	}
	f.shards = []shard{{data: data, start: start}}
	return f, nil
}

// foreign says what a file is that does not begin like a GGUF file.
func foreign(data []byte) string {
	kind := files.Recognize(data)
	if kind == files.Unknown {
		return "not a GGUF file"
	}
	return fmt.Sprintf("this is %s, not a GGUF file", kind)
}

// reader reads a file from front to back and returns zeros after its first error.
type reader struct {
	data []byte
	at   int
	err  error
}

// fail records an error at the byte offset at; unsupported does the same.
func (r *reader) fail(at int, format string, args ...any) {
	if r.err == nil {
		r.err = &FormatError{Offset: int64(at), Msg: fmt.Sprintf(format, args...)}
	}
}

func (r *reader) unsupported(at int, format string, args ...any) {
	if r.err == nil {
		r.err = &UnsupportedError{Offset: int64(at), Msg: fmt.Sprintf(format, args...)}
	}
}

// take returns the next n bytes, or nil if fewer remain.
func (r *reader) take(n uint64, what string) []byte {
	if left := uint64(len(r.data) - r.at); r.err != nil || n > left {
		r.fail(r.at, "%s takes %d bytes, the file has %d more", what, n, left)
		return nil
	}
	b := r.data[r.at:][:n:n]
	r.at += int(n)
	return b
}

func (r *reader) u32(what string) uint32 {
	if b := r.take(4, what); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) u64(what string) uint64 {
	if b := r.take(8, what); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (r *reader) text(what string) string { return string(r.take(r.length(what), what)) }

func (r *reader) length(what string) uint64 {
	at := r.at
	n := r.u64(what)
	if n > maxString && r.err == nil && n <= uint64(len(r.data)-r.at) {
		r.unsupported(at, "%s takes %d bytes: more than the limit of %d", what, n, maxString)
	}
	return n
}

// count reads a number of items that take at least size bytes each.
func (r *reader) count(what string, size, limit int) int {
	at := r.at
	n := r.u64("the number of " + what)
	if n > uint64(limit) {
		r.unsupported(at, "%d %s: more than the limit of %d", n, what, limit)
		return 0
	}
	if left := uint64((len(r.data) - r.at) / size); n > left {
		r.fail(at, "%d %s: the rest of the file has room for %d", n, what, left)
		return 0
	}
	return int(n)
}

func (r *reader) value(t ValueType, what string) any {
	at := r.at
	switch {
	case t == typeString:
		return r.text(what)
	case t == typeArray:
		return r.array(what)
	case uint64(t) >= uint64(len(valueTypes)):
		r.fail(at, "%s has type %d, which GGUF does not know", what, t)
	}
	if r.err != nil {
		return nil
	}
	b := r.take(valueTypes[t].bytes, what)
	if b == nil {
		return nil
	}
	if t == typeBool && b[0] > 1 {
		r.fail(at, "%s is %d, want 0 or 1", what, b[0])
	}
	return valueTypes[t].read(b)
}

func (r *reader) array(what string) any {
	at := r.at
	a := Array{Type: ValueType(r.u32(what))}
	if r.err == nil && (a.Type == typeArray || uint64(a.Type) >= uint64(len(valueTypes))) {
		r.fail(at, "%s is an array of type %d, which this reader does not know", what, a.Type)
		return nil
	}
	size := 8 // bytes of an empty string
	if a.Type != typeString && r.err == nil {
		size = int(valueTypes[a.Type].bytes)
	}
	a.Len = r.count("values in "+what, size, math.MaxInt)
	start := r.at
	if a.Type != typeString {
		a.Data = r.take(uint64(a.Len)*uint64(size), what)
		if a.Type == typeBool {
			if i := slices.IndexFunc(a.Data, func(b byte) bool { return b > 1 }); i >= 0 {
				r.fail(start+i, "%s has the boolean %d, want 0 or 1", what, a.Data[i])
			}
		}
		return a
	}
	for range a.Len {
		if r.take(r.length(what), what); r.err != nil {
			return nil
		}
	}
	a.Data = r.data[start:r.at:r.at]
	return a
}

// readPairs reads the pairs of keys and values and returns the alignment of the data.
func (f *File) readPairs(r *reader, n int) (alignment int64) {
	f.Metadata = make(map[string]any)
	alignment = defaultAlignment
	for range n {
		at := r.at
		key := r.text("a key")
		t := ValueType(r.u32("the type of a value"))
		valueAt := r.at
		v := r.value(t, fmt.Sprintf("the value of %.64q", key))
		if len(key) > maxKey {
			r.fail(at, "a key has %d bytes, more than %d", len(key), maxKey)
		}
		if _, seen := f.Metadata[key]; seen {
			r.fail(at, "key %q appears twice", key)
		}
		if r.err != nil {
			return alignment
		}
		f.Metadata[key] = v
		f.Keys = append(f.Keys, key)
		if key != keyAlignment {
			continue
		}
		a, ok := alignmentOf(v)
		if !ok {
			r.fail(valueAt, "%s %v: %s", key, v, wantAlignment)
		}
		alignment = a
	}
	return alignment
}

// alignmentOf returns a value of keyAlignment; ok is false for other values.
func alignmentOf(v any) (alignment int64, ok bool) {
	a, ok := v.(uint32)
	return int64(a), ok && a > 0 && a <= maxAlignment && a&(a-1) == 0
}

const (
	keyAlignment  = "general.alignment"
	wantAlignment = "want a power of two up to 2^20, as uint32"
)

// readTensors reads n tensors' descriptions, finds their data, and returns where the data begin.
func (f *File) readTensors(r *reader, n int, alignment int64) (start int64) {
	f.byName = make(map[string]*Tensor)
	next := int64(0) // where the next tensor's data must begin
	for range n {
		t := r.tensor()
		if r.err != nil {
			return 0
		}
		switch {
		case f.byName[t.Name] != nil:
			r.fail(int(t.At), "tensor %q appears twice", t.Name)
		case t.Offset != next:
			r.fail(int(t.At), "the data of tensor %q are at offset %d, want %d, behind the previous tensor's", t.Name, uint64(t.Offset), next)
		case next+t.Size > int64(len(r.data)):
			r.fail(int(t.At), "tensor %q takes %d bytes from offset %d on, the file has %d", t.Name, t.Size, t.Offset, len(r.data))
		}
		if r.err != nil {
			return 0
		}
		next += align(t.Size, alignment)
		f.byName[t.Name] = t
		f.Tensors = append(f.Tensors, t)
	}
	if r.err != nil {
		return 0
	}
	start = align(int64(r.at), alignment)
	for _, t := range f.Tensors {
		t.Offset += start
		if end := t.Offset + t.Size; end > int64(len(r.data)) {
			r.fail(int(t.At), "the data of tensor %q end at byte %d, the file at %d", t.Name, end, len(r.data))
			return 0
		}
	}
	return start
}

// tensor reads a tensor's description with an Offset that is still relative to the data.
func (r *reader) tensor() *Tensor {
	t := &Tensor{At: int64(r.at)}
	if t.Name = r.text("a tensor's name"); len(t.Name) > maxKey {
		r.unsupported(int(t.At), "a tensor's name has %d bytes, more than %d", len(t.Name), maxKey)
	}
	dims := r.u32("a tensor's dimensions")
	if dims > maxDims {
		r.fail(int(t.At), "tensor %q has %d dimensions, more than %d", t.Name, dims, maxDims)
	}
	elements := uint64(1)
	for range min(dims, maxDims) {
		d := r.u64("a tensor's dimensions")
		if r.err == nil && (d == 0 || d > maxElements/elements) {
			r.fail(int(t.At), "tensor %q has a dimension of %d: want 1 or more, and at most 2^56 elements in all", t.Name, d)
		}
		if r.err != nil {
			return nil
		}
		elements *= d
		t.Dims = append(t.Dims, int64(d))
	}
	typeAt := r.at
	t.Type = TensorType(r.u32("a tensor's type"))
	t.Offset = int64(r.u64("a tensor's offset"))
	info, ok := t.Type.info()
	switch {
	case r.err != nil:
	case !ok:
		r.unsupported(typeAt, "tensor %q: %s", t.Name, t.Type.unknown())
	case info.block > 1 && (len(t.Dims) == 0 || t.Dims[0]%int64(info.block) != 0):
		r.fail(int(t.At), "tensor %q has rows of %v elements: %s has blocks of %d", t.Name, t.Dims[:min(1, len(t.Dims))], t.Type, info.block)
	default:
		t.Size = t.Type.Size(int64(elements))
	}
	return t
}
