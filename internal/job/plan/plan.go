// Package plan lists the tensors of a job's output, and decides how each is stored: as codes in
// layouts, in a type of GGUF files or in a format of checkpoints, or as it is in the source.
//
// A [Draft] is a tensor that nothing is decided on. A [Planner] makes an [Item] of it, and asks the
// job's [Output] how the item is stored. [Codes] are chosen before the output is written.
package plan

import (
	"fmt"
	"iter"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Plan lists every tensor's treatment and its place in the output. It is made before weights are
// read, and does not change afterwards.
type Plan struct {
	Tensors  []*Tensor `json:"tensors"`
	Warnings []string  `json:"warnings"`
	// OutputBytes is the exact size of the output without an account of calibration.
	OutputBytes int64 `json:"output_bytes"`
	// SourceBytes is the size of the tensors of the source.
	SourceBytes int64 `json:"source_bytes"`
	// Fold says how the checkpoint was folded, if it was.
	Fold *provenance.Fold `json:"fold,omitempty"`

	Items   []Item
	Config  []byte // config.json; nil: none
	Recipe  quantizer.Recipe
	Threads int // of the job; 0: GOMAXPROCS
	// Factors are factors of the weights of quantized tensors, by the name in the checkpoint.
	Factors map[string]RowFactors
}

// Quantized are the quantized items.
func (p *Plan) Quantized() iter.Seq[*Quantized] {
	return func(yield func(*Quantized) bool) {
		for _, it := range p.Items {
			if q, ok := it.(*Quantized); ok && !yield(q) {
				return
			}
		}
	}
}

// RowFactors are factors of the rows of a matrix. config.json has such factors beside the weights,
// and the output has them in the weights.
type RowFactors []RowFactor

// RowFactor is the factor of Rows rows from From on.
type RowFactor struct {
	From, Rows int
	Factor     float32
}

// Of returns the factor of a row.
func (f RowFactors) Of(row int) float32 {
	for _, r := range f {
		if row >= r.From && row < r.From+r.Rows {
			return r.Factor
		}
	}
	return 1
}

// Multiply multiplies rows of cols weights by their factors. x begins with row first.
func (f RowFactors) Multiply(x []float32, first, cols int) {
	for ; f != nil && len(x) > 0; x = x[cols:] {
		factor := f.Of(first)
		for i, v := range x[:cols] {
			x[i] = float32(v * factor)
		}
		first++
	}
}

// Divided returns a function that reads rows of multiplied weights as the checkpoint has the rows.
func (f RowFactors) Divided(read func(dst []float32, row int)) func(dst []float32, row int) {
	if f == nil {
		return read
	}
	return func(dst []float32, row int) {
		read(dst, row)
		for i, factor := 0, f.Of(row); i < len(dst); i++ {
			dst[i] /= factor
		}
	}
}

// FileTensor is a quantized tensor of a .gqf file with its packed header.
type FileTensor struct {
	gqf.Tensor
	Header packing.Header
	File   *gqf.File
	Path   string
}

// HasNonIntegerZeros reports whether a slice has a floating-point zero point that is no integer.
func (t FileTensor) HasNonIntegerZeros(slice int) (has bool, err error) {
	rows, err := t.Rows(0, slice)
	if err != nil {
		return false, err
	}
	return has, t.File.Guard(func() error { has = rows.HasNonIntegerZeros(); return nil })
}

// Repeat appends a value for each of n parts of a row: the value of the group that holds the part.
// A group has perGroup parts. The row's last group may have fewer.
func Repeat[T any](dst, values []T, n, perGroup int) []T {
	for i := 0; len(values) > 0 && i < n; i++ {
		dst = append(dst, values[min(i/perGroup, len(values)-1)])
	}
	return dst
}

// AndMore counts further tensors in a message.
func AndMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more tensors", n)
}

// MostListed bounds the tensors, rules or reasons that an error lists.
const MostListed = 10
