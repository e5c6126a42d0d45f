package gguf

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/mmap"
)

// Magic starts every GGUF file.
const Magic = "GGUF"

const (
	defaultAlignment = 32 // without general.alignment
	maxAlignment     = 1 << 20
	maxDims          = 4
	maxKey           = 1<<16 - 1 // bytes of a key, from the specification
	maxElements      = 1 << 56   // of a tensor: sizes in bits stay below 2^63
)

// KeyArchitecture is the key of the model's architecture. All files of models have the key.
const KeyArchitecture = "general.architecture"

// FormatError reports where and why a GGUF file is malformed.
type FormatError struct {
	File   string // path of the file or shard; empty for Parse
	Offset int64  // in the file
	Msg    string
}

func (e *FormatError) Error() string { return position(e.File, e.Offset) + e.Msg }

// UnsupportedError reports a version, a type of tensor or a size that this package does not read.
type UnsupportedError struct {
	File   string // path of the file or shard; empty for Parse
	Offset int64  // in the file
	Msg    string
}

func (e *UnsupportedError) Error() string { return position(e.File, e.Offset) + e.Msg }

func position(file string, offset int64) string {
	if file == "" {
		return fmt.Sprintf("byte %d: ", offset)
	}
	return fmt.Sprintf("%s: byte %d: ", file, offset)
}

// File is the content of a GGUF file, or of the shards of a model.
type File struct {
	Version uint32
	// Metadata has the values by key, see ValueType.
	Metadata map[string]any
	// Keys are the keys of Metadata in the order of the file.
	Keys []string
	// Tensors are in the order of the file, or of the shards.
	Tensors []*Tensor

	byName map[string]*Tensor
	shards []shard
}

type shard struct {
	data  []byte
	m     *mmap.File // nil after Parse
	start int64      // offset of the tensors' data
}

// Array is a list of values. Data holds the values as encoded in the file, in the file's memory.
type Array struct {
	Type ValueType // not typeArray: llama.cpp has no nested arrays
	Len  int
	Data []byte
}

// Tensor describes a tensor and its place.
type Tensor struct {
	Name string
	// Dims are the sizes of the dimensions. The elements of the first dimension are adjacent.
	Dims []int64
	Type TensorType
	// At is the offset of the tensor's description, Offset the offset of its data, both in the
	// file, or in the shard of number Shard. Size is in bytes.
	At, Offset, Size int64
	Shard            int
}

func (t *Tensor) Elements() int64 { return elements(t.Dims) }

func elements(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// Columns is the length of a row: the first dimension.
func (t *Tensor) Columns() int64 {
	if len(t.Dims) == 0 {
		return 1
	}
	return t.Dims[0]
}

// Rows is the number of rows: the product of the other dimensions.
func (t *Tensor) Rows() int64 { return t.Elements() / t.Columns() }

func (t *Tensor) RowBytes() int64 { return t.Type.Size(t.Columns()) }

func (f *File) Tensor(name string) *Tensor { return f.byName[name] }

// Data returns the data of a tensor of f, in the file's memory: valid until Close, and after Parse
// in the memory that Parse got. Read a mapped file's data inside Guard.
func (f *File) Data(t *Tensor) []byte { return f.shards[t.Shard].data[t.Offset:][:t.Size:t.Size] }
