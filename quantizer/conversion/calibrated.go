package conversion

import (
	"crypto/sha256"
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
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

	item *quantized
}

// Embedded reports whether rows of the matrix are looked up.
func (m Matrix) Embedded() bool { return m.Role == gqf.RoleEmbedding }

// Name is package model's name of the matrix: the tensor's name, with the expert in brackets for a slice.
func (m Matrix) Name() string {
	if m.Slices > 1 {
		return fmt.Sprintf("%s[%d]", m.Tensor, m.Slice)
	}
	return m.Tensor
}

// Matrices lists the matrices that the plan quantizes, in the file's order; a repack quantizes nothing.
func (p *Plan) Matrices() []Matrix {
	var list []Matrix
	if p.ck == nil {
		return nil
	}
	for it := range p.quantized() {
		for s := range it.slices {
			list = append(list, it.matrix(s))
		}
	}
	return list
}

// matrix is a slice of the item.
func (it *quantized) matrix(slice int) Matrix {
	return Matrix{it.src.Name, slice, it.slices, it.role, it.shared, int(it.rows), int(it.cols), it.scheme, it.smallest, it.src.Precision(), it.zeros == packing.ZeroF32, it}
}

// ReadMatrix reads the weights of a matrix of the plan, [Rows][Cols]. It fails with *TensorError if one is not finite.
func (p *Plan) ReadMatrix(dst []float32, m Matrix) error { return p.ReadRows(dst, m, 0, m.Rows) }

// ReadRows is ReadMatrix for n rows from row first on. Several goroutines may call it.
func (p *Plan) ReadRows(dst []float32, m Matrix, first, n int) error {
	w, err := p.weights(m.item)
	if err != nil {
		return err
	}
	dst = dst[:n*m.Cols]
	if err := w.Read(dst, m.Slice*m.Rows+first, n); err != nil {
		return err
	}
	for i, v := range dst {
		if !floats.Finite(v) {
			src := m.item.src
			e := &quantizer.TensorError{File: p.ck.Files()[src.File].Name, Tensor: src.Name, Slice: -1, Row: int64(first + i/m.Cols), Err: &rounding.NonFiniteError{Column: i % m.Cols, Value: v}}
			if m.Slices > 1 {
				e.Slice = m.Slice
			}
			return e
		}
	}
	return nil
}

// SourceDir is the directory of the checkpoint.
func (p *Plan) SourceDir() string { return p.ck.Dir() }

// SourceStamps tells the checkpoint and its config.json apart from others: see safetensors.Checkpoint.Stamps.
func (p *Plan) SourceStamps() []string {
	return append(p.ck.Stamps(), fmt.Sprintf("config.json %x", sha256.Sum256(p.config)))
}

// RowReader gives rows of codes that were chosen before the file is written. It is called from several goroutines.
type RowReader interface {
	// ReadRow copies a row to dst.
	ReadRow(row int, dst rounding.Row) error
}

// CalibratedCodes is the result of calibration, for the writing of a plan.
type CalibratedCodes struct {
	// Rows gives the codes of a matrix; nil: they are chosen while the file is written. It may be nil itself. It is called
	// from several goroutines.
	Rows func(m Matrix) RowReader
	// Importance gives the weights of columns of a matrix whose scales are searched while the file is written. It may be
	// nil, and so may its result: all columns count the same. It is called from several goroutines.
	Importance func(m Matrix) *Importance
	// Tuned replaces codes and unquantized vectors. Default: none.
	Tuned *Tuned
	// Calibration goes into the file's provenance.
	Calibration *Calibration
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
func (c *CalibratedCodes) rows(m Matrix) RowReader {
	if c.Rows == nil {
		return nil
	}
	return c.Rows(m)
}

// importance is Importance, which may be nil.
func (c *CalibratedCodes) importance(m Matrix) *Importance {
	if c.Importance == nil {
		return nil
	}
	return c.Importance(m)
}

// complete tells whether there is something for every slice of an item.
func (c *CalibratedCodes) complete(it *quantized) bool {
	for s := range it.slices {
		if m := it.matrix(s); c.rows(m) == nil && c.importance(m) == nil {
			return false
		}
	}
	return true
}

// check refuses codes for a matrix whose zero points are stored as floats: a RowReader gives integers.
func (c *CalibratedCodes) check(p *Plan) error {
	for _, m := range p.Matrices() {
		if m.item.zeros == packing.ZeroF32 && (c.rows(m) != nil || c.Tuned.rows(m) != nil) {
			return fmt.Errorf("%q: its scheme (%s) has floating-point zero points, the codes that were chosen have integer ones: plan it with another algorithm", m.Name(), m.Scheme)
		}
	}
	return nil
}

// Calibration records the algorithm that chose the codes, and its data.
type Calibration struct {
	Algorithm string `json:"algorithm"`
	// Parameters of the algorithm.
	Parameters map[string]any `json:"parameters,omitempty"`
	// Source is "self" for text that the model wrote, else the kind of the file: "text", "tokens" or "imatrix".
	Source string `json:"source"`
	// SHA256 is the hash of the file, or of the token ids as little-endian int32 if the model wrote the text.
	SHA256    string  `json:"source_sha256"`
	Tokens    int     `json:"tokens"`
	Sequences int     `json:"sequences"`
	Seed      *uint64 `json:"seed,omitempty"`
	// Fallbacks counts the matrices that calibration did not reach, or did not improve.
	Fallbacks int `json:"fallbacks,omitempty"`

	// The following fields are of gptq and gptq-ft: Plan.OlderLayers compares them.

	// LayerFallbacks counts the Fallbacks of each decoder layer, and then of the lm_head. nil: none.
	LayerFallbacks []int `json:"layer_fallbacks,omitempty"`
	// SequencesSHA256 is text.Text.Hash of the sequences.
	SequencesSHA256 string `json:"sequences_sha256,omitempty"`
	// Version is the version of the algorithm. It changes whenever the codes change.
	Version int `json:"version,omitempty"`
}

// chosenRow puts row n of the unit, as chosen has it, into row i of the block.
func (w *worker) chosenRow(it *quantized, chosen RowReader, slice int, row0, n, i int64, src rowReader) error {
	x := src(w.x, n)
	dst := w.rowCodes(i)
	if err := chosen.ReadRow(int(row0+n), dst); err != nil {
		return w.rowError(it, slice, row0+n, err)
	}
	dequantized := buffer.Grow(&w.dequantized, len(x))
	it.scheme.Shape(1, len(x)).Dequantize(dequantized, dst)
	for k, v := range x {
		if !floats.Finite(v) {
			return w.rowError(it, slice, row0+n, &rounding.NonFiniteError{Column: k, Value: v})
		}
		e := v - dequantized[k]
		lane := k % len(w.acc.Noise)
		w.acc.Noise[lane] += float64(float32(e * e))
		w.acc.Signal[lane] += float64(float32(v * v))
	}
	precision := it.src.Precision()
	w.countGroups(x, i, func(g int) bool {
		same := precision != packing.ScaleNone && it.scheme.Type == 0
		any := false
		for k, v := range w.rq.GroupOf(x, g) {
			any = any || v != 0
			if same = same && precision.Round(w.rq.GroupOf(dequantized, g)[k]) == v; !same {
				return false
			}
		}
		return any
	})
	return nil
}
