package gguf

import (
	"fmt"
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

// FormatError reports where and why a GGUF file is malformed.
type FormatError struct {
	Offset int64 // in the file
	Msg    string
}

func (e *FormatError) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Msg) }

// UnsupportedError reports a version or a type of tensor that this package does not know.
type UnsupportedError struct {
	Offset int64 // in the file
	Msg    string
}

func (e *UnsupportedError) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Msg) }

// File is the content of a GGUF file.
type File struct {
	Version uint32
	// Metadata has the values by key, see ValueType.
	Metadata map[string]any
	// Tensors are in the order of the file.
	Tensors []*Tensor
	// DataStart is the offset of the tensors' data.
	DataStart int64

	data []byte
}

// Array is a list of values. Data holds the values as encoded in the file, in the file's memory.
type Array struct {
	Type ValueType // not TypeArray: llama.cpp has no nested arrays
	Len  int
	Data []byte
}

// Tensor describes a tensor and its place.
type Tensor struct {
	Name string
	// Dims is the number of elements of each dimension. The elements of the first dimension are
	// adjacent.
	Dims []int64
	Type TensorType
	// At is the offset of the tensor's description, Offset the offset of its data, both in the
	// file. Size is in bytes.
	At, Offset, Size int64
}

// Elements is the product of the dimensions.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// Data returns the data of a tensor of f, in the memory that Parse got.
func (f *File) Data(t *Tensor) []byte { return f.data[t.Offset:][:t.Size:t.Size] }
