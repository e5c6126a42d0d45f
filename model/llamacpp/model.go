package llamacpp

import (
	"github.com/lowbit-go/gq/formats/gguf"
)

// A Source is a tensor of the model that is described, by its name in a checkpoint.
type Source struct {
	Name  string
	Shape []int64
	// Same is the name of another source with the same content: a tied lm_head names the embedding.
	// "" if there is none.
	Same string
}

// Model is a model as llama.cpp stores it.
type Model struct {
	Architecture string // general.architecture
	// Metadata are the keys that begin with the architecture's name, in the order of llama.cpp's
	// own converter.
	Metadata []gguf.Pair
	Tensors  []Tensor
	// Notes are differences between the model and what llama.cpp will compute, for a report.
	Notes []string
}

// Tensor is a tensor of a GGUF file.
type Tensor struct {
	Name string
	// Shape is in GGUF's order: the elements of the first dimension are adjacent.
	Shape []int64
	// Parts lie below each other in the tensor. There are none if Values is set.
	Parts []Part
	// Values are the tensor's elements if it has no counterpart in a checkpoint (rope factors).
	Values []float32
	// F32: llama.cpp requires float32 (norms, biases, routers).
	F32 bool
}

// Elements is the product of the dimensions.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Part is a range of rows of a source. The rows of a matrix are its outputs; the rows of a vector
// are its elements.
type Part struct {
	Source string
	Slice  int // expert in a source of fused experts; else 0
	// From is the first of Rows rows, within the slice.
	From, Rows int
	// HeadDim is not 0 if llama.cpp has the rows in another order: it rotates neighbouring rows of a
	// head where a checkpoint rotates rows i and i + HeadDim/2.
	HeadDim int
	Add     float32 // added to each element: Gemma's norms store weight + 1
}

// Row returns the row of the source, counted from p.From, that is row i of the part.
func (p *Part) Row(i int) int {
	if p.HeadDim == 0 {
		return i
	}
	head, in := i/p.HeadDim*p.HeadDim, i%p.HeadDim
	return head + in%2*(p.HeadDim/2) + in/2
}

// PartRow is the inverse of Row: it returns the row of the part that has row i of the source.
func (p *Part) PartRow(i int) int {
	if p.HeadDim == 0 {
		return i
	}
	head, in := i/p.HeadDim*p.HeadDim, i%p.HeadDim
	half := p.HeadDim / 2
	return head + in%half*2 + in/half
}
