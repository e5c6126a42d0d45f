package gguf

import (
	"fmt"
)

// Magic is what a GGUF file begins with.
const Magic = "GGUF"

const (
	defaultAlignment = 32 // unless general.alignment says another
	maxAlignment     = 1 << 20
	maxDims          = 4
	maxKey           = 1<<16 - 1 // bytes of a key, by the specification
	maxElements      = 1 << 56   // of a tensor: sizes in bits stay below 2^63
)

// FormatError says where a GGUF file is malformed.
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

// File is what a GGUF file holds.
type File struct {
	Version uint32
	// Metadata has the values by key, see ValueType.
	Metadata map[string]any
	// Tensors are in the file's order.
	Tensors []*Tensor
	// DataStart is where the data of the tensors begin.
	DataStart int64

	data []byte
}

// Array is a value that has several. Data holds them as the file does, in the file's memory.
type Array struct {
	Type ValueType // not TypeArray: nothing in llama.cpp nests them
	Len  int
	Data []byte
}

// Tensor is where a tensor is, and what it is.
type Tensor struct {
	Name string
	// Dims is the number of elements of each dimension, the one whose elements lie side by side first.
	Dims []int64
	Type TensorType
	// At is where the tensor is described, Offset where its data are, both in the file. Size is in bytes.
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

// Data gives the data of a tensor of f, in the memory that Parse got.
func (f *File) Data(t *Tensor) []byte { return f.data[t.Offset:][:t.Size:t.Size] }
