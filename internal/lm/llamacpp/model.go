package llamacpp

import (
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/detmath"
)

// A Source is a tensor of the model that is described, by its name in a checkpoint.
type Source struct {
	Name  string
	Shape []int64
	// Same is the name of another source with the same content, or "": a tied lm_head names the
	// embedding.
	Same string
}

// Model is a model in llama.cpp's form.
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
	// Parts are stacked in the tensor. There are none if Values is set.
	Parts []Part
	// Values are the elements of a tensor without a counterpart in a checkpoint (rope factors).
	Values []float32
	// F32: llama.cpp requires float32 (norms, biases, routers).
	F32 bool
}

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
	// From is the first of Rows rows, within the slice. Step is from a row to the next; 0: 1.
	From, Rows, Step int
	Order            // of the rows
	Columns          Order
	// Elements: the rows of the part are elements of a matrix.
	Elements bool
	// Turned, if not 0, is the number of columns: the part is transposed.
	Turned int
	Add    float32 // added to each element: Gemma's norms store weight + 1
	Factor float32 // of each element; 0: 1
	Decay  bool    // an element x is stored as -e^x
}

// Order is an order of rows or columns. Each Head of them are Lines lines of blocks of Block.
// llama.cpp has the blocks column by column: neighbouring rows of a head rotate together where a
// checkpoint rotates rows i and i + Head/2 (2 lines), and heads of values that share a head of keys
// lie apart. The zero value is the order of the source.
type Order struct{ Head, Lines, Block int }

// Store changes elements of the source to the elements of the tensor.
func (p *Part) Store(x []float32) {
	for i, v := range x {
		switch x[i] = float32(v + p.Add); {
		case p.Decay:
			x[i] = float32(-detmath.Exp(float64(v)))
		case p.Factor != 0:
			x[i] = float32(v * p.Factor)
		}
	}
}

// Row returns the row of the source that is row i of the part.
func (p *Part) Row(i int) int { return p.From + max(1, p.Step)*p.At(i) }

// Find is the inverse of Row. ok is false for a row outside of the part.
func (p *Part) Find(row int) (i int, ok bool) {
	step := max(1, p.Step)
	i = (row - p.From) / step
	if row < p.From || i >= p.Rows || (row-p.From)%step != 0 {
		return 0, false
	}
	if p.Head != 0 {
		i = p.turn(i, p.Head/p.Block/p.Lines)
	}
	return i, true
}

// End is the row behind the last row of the source.
func (p *Part) End() int { return p.From + p.Rows*max(1, p.Step) }

// Height is the number of rows that the part has in the tensor.
func (p *Part) Height() int {
	if p.Turned > 0 {
		return p.Turned
	}
	return p.Rows
}

// Same reports whether the rows are neighbours in the order of the source.
func (p *Part) Same() bool { return p.Step <= 1 && p.Head == 0 }

// At returns the place in the source of place i in llama.cpp's order.
func (o *Order) At(i int) int {
	if o.Head == 0 {
		return i
	}
	return o.turn(i, o.Lines)
}

// turn returns the place of place i when the blocks of its head, in columns of lines blocks, are
// written line by line.
func (o *Order) turn(i, lines int) int {
	in, columns := i%o.Head, o.Head/o.Block/lines
	b := in / o.Block
	return i - in + (b%lines*columns+b/lines)*o.Block + in%o.Block
}
