package calib

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// llama-imatrix of llama.cpp (tools/imatrix/imatrix.cpp) writes GGUF version 3 (ggml/src/gguf.cpp), little-endian:
//
//	"GGUF", u32 version, i64 tensors, i64 pairs
//	pairs:    string key, u32 type, value
//	tensors:  string name, u32 dimensions, i64 each, u32 type, u64 offset in the data
//	data, at a multiple of general.alignment (32), as each tensor in it; tensors follow each other in order
//
// A string is a u64 length and bytes, an array a u32 type, a u64 length and values. general.type is "imatrix". For each
// matrix NAME there are two tensors of F32: NAME.in_sum2, the sums of squares of what goes in, of n_mat rows of columns,
// and NAME.counts, n_mat numbers of tokens. n_mat is the number of experts where they are fused, else 1. Newer
// files have NAME.in_sum too, plain sums.

const (
	ggufMagic     = "GGUF"
	ggufVersion   = 3
	ggufAlignment = 32 // unless general.alignment says another
	ggufString    = 8  // types of values
	ggufArray     = 9
	ggufUint32    = 4
	ggufF32       = 0 // type of tensors
	ggufMaxDims   = 4
)

// ggufSizes are the sizes of values by type; 0: not fixed.
var ggufSizes = [...]int{1, 1, 2, 2, 4, 4, 4, 1, ggufString: 0, ggufArray: 0, 10: 8, 11: 8, 12: 8}

// ImatrixError says where an imatrix in GGUF is malformed. Whoever knows the file's name puts it before.
type ImatrixError struct {
	Offset int64 // in the file
	Msg    string
}

func (e *ImatrixError) Error() string {
	return fmt.Sprintf("imatrix: byte %d: %s", e.Offset, e.Msg)
}

// ggufReader reads a file front to back. After its first error it gives zeros.
type ggufReader struct {
	data []byte
	at   int
	err  *ImatrixError
}

// fail notes an error at the byte offset at.
func (r *ggufReader) fail(at int, format string, args ...any) {
	if r.err == nil {
		r.err = &ImatrixError{int64(at), fmt.Sprintf(format, args...)}
	}
}

// take gives the next n bytes, nil if there are no more.
func (r *ggufReader) take(n uint64, what string) []byte {
	if left := uint64(len(r.data) - r.at); r.err != nil || n > left {
		r.fail(r.at, "%s takes %d bytes, the file has %d more", what, n, left)
		return nil
	}
	b := r.data[r.at:][:n]
	r.at += int(n)
	return b
}

func (r *ggufReader) u32(what string) uint32 {
	if b := r.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *ggufReader) u64(what string) uint64 {
	if b := r.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *ggufReader) text(what string) string { return string(r.take(r.u64(what), what)) }

// count reads a number of things that take at least size bytes each.
func (r *ggufReader) count(what string, size int) int {
	at := r.at
	n := r.u64("the number of " + what)
	if left := uint64((len(r.data) - r.at) / size); n > left {
		r.fail(at, "%d %s: the rest of the file has room for %d", n, what, left)
		return 0
	}
	return int(n)
}

// skip passes over a value.
func (r *ggufReader) skip(kind uint32, key string) {
	at, n := r.at, 1
	what := fmt.Sprintf("the value of %q", key)
	if kind == ggufArray {
		kind = r.u32(what)
		n = r.count("values of "+fmt.Sprintf("%q", key), 1)
	}
	switch {
	case r.err != nil:
	case kind == ggufString:
		for range n {
			if r.take(r.u64(what), what); r.err != nil {
				return
			}
		}
	case int(kind) < len(ggufSizes) && ggufSizes[kind] > 0:
		r.take(uint64(n)*uint64(ggufSizes[kind]), what)
	default:
		r.fail(at, "%s has type %d, which GGUF does not know here", what, kind)
	}
}

// pairs reads the pairs of keys and values and returns the alignment of the data.
func (r *ggufReader) pairs(n int) (alignment int) {
	alignment = ggufAlignment
	seen, general := map[string]bool{}, ""
	for range n {
		at := r.at
		key := r.text("a key")
		kind := r.u32("the type of a value")
		switch {
		case r.err != nil:
			return alignment
		case seen[key]:
			r.fail(at, "key %q is there twice", key)
		case key == "general.type" && kind == ggufString:
			general = r.text("general.type")
		case key == "general.alignment" && kind == ggufUint32:
			a := r.u32("general.alignment")
			if alignment = int(a); a == 0 || a > 1<<20 || a&(a-1) != 0 {
				r.fail(at, "general.alignment %d: want a power of two up to 2^20", a)
			}
		default:
			r.skip(kind, key)
		}
		seen[key] = true
	}
	if r.err == nil && general != "imatrix" {
		r.fail(0, "a GGUF file of type %q, not of type \"imatrix\": take the file that llama-imatrix wrote", general)
	}
	return alignment
}

// ggufTensor is where a tensor is.
type ggufTensor struct {
	at     int    // of its description in the file
	size   int    // elements
	offset uint64 // in the data
	data   int    // in the file
}

// tensors reads the descriptions of n tensors and finds their data.
func (r *ggufReader) tensors(n, alignment int) (names []string, byName map[string]*ggufTensor) {
	byName = make(map[string]*ggufTensor, n)
	next := uint64(0) // where the next one's data should be
	for range n {
		t := &ggufTensor{at: r.at, size: 1}
		name := r.text("a tensor's name")
		dims := r.u32("a tensor's dimensions")
		if dims > ggufMaxDims {
			r.fail(t.at, "tensor %q has %d dimensions, more than %d", name, dims, ggufMaxDims)
		}
		for range min(dims, ggufMaxDims) {
			d := r.u64("a tensor's dimensions")
			if most := uint64(len(r.data)/4) / uint64(max(t.size, 1)); r.err == nil && (d == 0 || d > most) {
				r.fail(t.at, "tensor %q has a dimension of %d, more than the file holds, or 0", name, d)
			}
			if r.err != nil {
				return nil, nil
			}
			t.size *= int(d)
		}
		kind := r.u32("a tensor's type")
		t.offset = r.u64("a tensor's offset")
		switch {
		case r.err != nil:
			return nil, nil
		case byName[name] != nil:
			r.fail(t.at, "tensor %q is there twice", name)
		case kind != ggufF32:
			r.fail(t.at, "tensor %q has type %d: an imatrix has tensors of F32 (0)", name, kind)
		case t.offset != next:
			r.fail(t.at, "the data of tensor %q are at offset %d, want %d, behind those of the one before", name, t.offset, next)
		}
		next += (4*uint64(t.size) + uint64(alignment) - 1) / uint64(alignment) * uint64(alignment)
		names, byName[name] = append(names, name), t
	}
	start := (r.at + alignment - 1) / alignment * alignment
	for _, name := range names {
		t := byName[name]
		if end := uint64(start) + t.offset + 4*uint64(t.size); end > uint64(len(r.data)) {
			r.fail(t.at, "the data of tensor %q end at byte %d, the file at %d", name, end, len(r.data))
			return nil, nil
		}
		t.data = start + int(t.offset)
	}
	return names, byName
}

// numbers reads the data of a tensor, which are not negative.
func (r *ggufReader) numbers(t *ggufTensor, name string) []float64 {
	list := make([]float64, t.size)
	for i := range list {
		v := math.Float32frombits(binary.LittleEndian.Uint32(r.data[t.data+4*i:]))
		if !(v >= 0) || math.IsInf(float64(v), 0) {
			r.fail(t.data+4*i, "element %d of tensor %q is %v: want a finite number, 0 or more", i, name, v)
			return nil
		}
		list[i] = float64(v)
	}
	return list
}

// readGGUF calls entry for every matrix of an imatrix in GGUF, in the file's order: with the tokens that reached each of
// its experts (one if it is a single matrix) and the sums of squares of their inputs, one after the other. It fails with
// *ImatrixError, or as entry does.
func readGGUF(data []byte, entry func(name string, counts []int64, sums []float64) error) error {
	r := &ggufReader{data: data}
	if string(r.take(4, "the magic")) != ggufMagic {
		r.fail(0, "no GGUF file")
	}
	if v := r.u32("the version"); r.err == nil && v != ggufVersion {
		r.fail(4, "GGUF version %d (%#x): only version %d, little-endian, is known", v, v, ggufVersion)
	}
	n := r.count("tensors", 8+4+4+8)
	pairs := r.count("keys", 8+4+1)
	alignment := r.pairs(pairs)
	var names []string
	var tensors map[string]*ggufTensor
	if r.err == nil {
		names, tensors = r.tensors(n, alignment)
	}
	entries := 0
	for _, name := range names {
		if r.err != nil {
			break
		}
		matrix, isSum := strings.CutSuffix(name, ".in_sum2")
		if m, ok := strings.CutSuffix(name, ".counts"); ok && tensors[m+".in_sum2"] == nil {
			r.fail(tensors[name].at, "tensor %q has no %q beside it", name, m+".in_sum2")
		}
		if !isSum {
			continue
		}
		counts, sums := r.matrix(matrix, tensors)
		if r.err != nil {
			break
		}
		entries++
		if err := entry(matrix, counts, sums); err != nil {
			return err
		}
	}
	if r.err == nil && entries == 0 {
		r.fail(0, "it has no matrices")
	}
	if r.err != nil {
		return r.err
	}
	return nil
}

// matrix reads counts and sums of a matrix.
func (r *ggufReader) matrix(name string, tensors map[string]*ggufTensor) (counts []int64, sums []float64) {
	s, c := tensors[name+".in_sum2"], tensors[name+".counts"]
	switch {
	case c == nil:
		r.fail(s.at, "tensor %q has no %q beside it", name+".in_sum2", name+".counts")
		return nil, nil
	case s.size%c.size != 0:
		r.fail(s.at, "%d sums of %q are not those of %d matrices", s.size, name, c.size)
		return nil, nil
	}
	sums = r.numbers(s, name+".in_sum2")
	for _, v := range r.numbers(c, name+".counts") {
		if v > 1<<40 {
			r.fail(c.data, "%q has seen %v tokens, more than 2^40", name, v)
		}
		counts = append(counts, int64(math.Round(v)))
	}
	return counts, sums
}
