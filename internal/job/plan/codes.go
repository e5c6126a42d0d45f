package plan

import (
	"fmt"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// Matrix is one matrix that a plan quantizes: a tensor, or an expert's slice of one.
type Matrix struct {
	Tensor string // its name in the checkpoint
	Slice  int    // expert of a fused tensor, else 0
	Slices int    // of the tensor; 1 if it is one matrix
	Role   gqf.Role
	// Shared reports whether the matrix is the embedding and the lm_head too.
	Shared     bool
	Rows, Cols int
	Scheme     rounding.Scheme
	// SmallestScale is the smallest magnitude of a scale that every layout of the tensor can hold.
	SmallestScale float32
	// Precision is the dtype of the weights, see RowQuantizer.Recover.
	Precision packing.ScaleDtype
	// FloatZeros reports whether the zero points are floating-point numbers, which no RowReader gives.
	FloatZeros bool

	Item *Quantized
}

// Embedded reports whether rows of the matrix are looked up.
func (m Matrix) Embedded() bool { return m.Role == gqf.RoleEmbedding }

// Name is package model's name of the matrix: the tensor's name, with the expert in brackets for a
// slice.
func (m Matrix) Name() string {
	if m.Slices > 1 {
		return fmt.Sprintf("%s[%d]", m.Tensor, m.Slice)
	}
	return m.Tensor
}

// Rounder rounds rows of the matrix, in its scheme with another algorithm.
func (m Matrix) Rounder(a gqf.Algorithm) (*rounding.Rounder, error) {
	s := m.Scheme
	s.Algorithm = a
	q, err := rounding.NewRounder(s, m.Cols)
	if err == nil {
		q.LimitScales(m.SmallestScale)
		q.Recover(m.Precision)
	}
	return q, err
}

// Matrix is a slice of the item.
func (it *Quantized) Matrix(slice int) Matrix {
	return Matrix{it.Src.Name, slice, it.Slices, it.Role, it.Shared, int(it.Rows), int(it.Cols), it.Scheme, it.Smallest, it.Src.Precision(), it.Zeros == packing.ZeroF32, it}
}

// RowReader gives rows of codes that were chosen before the file is written. It is called from
// several goroutines.
type RowReader interface {
	// ReadRow copies a row to dst.
	ReadRow(row int, dst rounding.Row) error
}

// Codes is the result of calibration, for the writing of a plan.
type Codes struct {
	// Rows gives the codes of a matrix; nil: they are chosen while the file is written. It may be nil
	// itself. It is called from several goroutines.
	Rows func(m Matrix) RowReader
	// Importance gives the weights of columns of a matrix whose scales are searched while the file is
	// written. It may be nil, and so may its result: all columns count the same. It is called from
	// several goroutines.
	Importance func(m Matrix) *Importance
	// Tuned replaces codes and unquantized vectors. Default: none.
	Tuned *Tuned
	// Calibration goes into the file's provenance.
	Calibration *provenance.Calibration
	// Facts go into the metadata of a .gguf file.
	Facts []gguf.Pair
	// Warnings go into the report, after the plan's.
	Warnings []string
}

// Importance weights the errors of columns in searches of scales.
type Importance struct {
	// Weights of the columns, see RowQuantizer.Weigh. nil: all columns count the same.
	Weights []float32
	// Rows says which rows are searched with the weights; the others are searched without.
	Rows []bool
}

// Row returns the weights of columns for a row. Importance may be nil.
func (i *Importance) Row(row int) []float32 {
	if i == nil || i.Weights == nil || !i.Rows[row] {
		return nil
	}
	return i.Weights
}

// rows is Rows, which may be nil.
func (c *Codes) rows(m Matrix) RowReader {
	if c.Rows == nil {
		return nil
	}
	return c.Rows(m)
}

// Chosen gives the codes of a matrix, tuned or calibrated; nil: they are chosen while the file is
// written.
func (c *Codes) Chosen(m Matrix) RowReader {
	if t := c.Tuned; t != nil && t.Rows != nil {
		if rows := t.Rows(m); rows != nil {
			return rows
		}
	}
	return c.rows(m)
}

// ImportanceOf is Importance, which may be nil.
func (c *Codes) ImportanceOf(m Matrix) *Importance {
	if c.Importance == nil {
		return nil
	}
	return c.Importance(m)
}

// Complete tells whether there is something for every slice of an item.
func (c *Codes) Complete(it *Quantized) bool {
	for s := range it.Slices {
		if m := it.Matrix(s); c.rows(m) == nil && c.ImportanceOf(m) == nil {
			return false
		}
	}
	return true
}

// Check refuses codes for a matrix whose zero points are stored as floats: a RowReader gives
// integers.
func (c *Codes) Check(p *Plan) error {
	for _, m := range p.Matrices() {
		if m.Item.Zeros == packing.ZeroF32 && c.Chosen(m) != nil {
			return fmt.Errorf("%q: its scheme (%s) has floating-point zero points, the codes that were chosen have integer ones: plan it with another algorithm", m.Name(), m.Scheme)
		}
	}
	return nil
}

// Tuned is the result of tuning after calibration, for the writing of a plan: codes that replace
// the codes of calibration, and vectors that replace the checkpoint's. Layouts, headers and sizes
// stay.
type Tuned struct {
	// Rows gives the tuned codes of a matrix; nil: tuning left them alone. It is called from several
	// goroutines.
	Rows func(m Matrix) RowReader
	// Vectors are the bytes of unquantized vectors that tuning changed, in the checkpoint's dtype, by
	// their names in the checkpoint.
	Vectors map[string][]byte
	// Tuning goes into the file's provenance.
	Tuning *provenance.Tuning
}

// Vector is the tuned bytes of an item; nil without.
func (c *Codes) Vector(e *Entry) []byte {
	if c.Tuned == nil {
		return nil
	}
	return c.Tuned.Vectors[e.Src.Name]
}

// Keys lists what the codes of matrices depend on, for the keys of working directories.
func Keys(list []Matrix) (keys []any) {
	for _, m := range list {
		keys = append(keys, struct {
			Name          string
			Scheme        rounding.Scheme
			SmallestScale float32
		}{m.Name(), m.Scheme, m.SmallestScale})
	}
	return keys
}

// Matrices lists the matrices that the plan quantizes, in the file's order.
func (p *Plan) Matrices() (list []Matrix) {
	for it := range p.Quantized() {
		for s := range it.Slices {
			list = append(list, it.Matrix(s))
		}
	}
	return list
}

// Vector is a vector of the checkpoint that the plan leaves unquantized.
type Vector struct {
	Name  string // in the checkpoint
	Dtype packing.Dtype
	Size  int
}

// Vectors lists the floating-point vectors of F32, F16 or BF16 that the plan leaves unquantized, in
// the file's order.
func (p *Plan) Vectors() (list []Vector) {
	for _, it := range p.Items {
		u, ok := it.(*Unquantized)
		if !ok || len(u.Src.Shape) != 1 {
			continue
		}
		switch u.Src.Dtype {
		case packing.F32, packing.F16, packing.BF16:
			list = append(list, Vector{u.Src.Name, u.Src.Dtype, int(u.Src.Shape[0])})
		}
	}
	return list
}
