package conversion

import (
	"crypto/sha256"
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// Matrix is one matrix that a plan quantizes: a tensor, or an expert's slice of one.
type Matrix struct {
	Tensor string // its name in the checkpoint
	Slice  int    // expert of a fused tensor, else 0
	Slices int    // of the tensor; 1 if it is one matrix
	Role   gqf.Role
	// Shared tells that the matrix is a table of tokens and the head too.
	Shared     bool
	Rows, Cols int
	Scheme     rounding.Scheme
	// SmallestScale is the smallest magnitude of a scale that every layout of the tensor can hold.
	SmallestScale float32

	item *item
}

// Name is what package model calls the matrix: the tensor's name, with the expert in brackets for a slice.
func (m Matrix) Name() string {
	if m.Slices > 1 {
		return fmt.Sprintf("%s[%d]", m.Tensor, m.Slice)
	}
	return m.Tensor
}

// Matrices lists what the plan quantizes, in the file's order.
func (p *Plan) Matrices() []Matrix {
	var list []Matrix
	for _, it := range p.items {
		if !it.quantize || it.repacked {
			continue
		}
		for s := range it.slices {
			list = append(list, Matrix{it.src.Name, s, it.slices, it.role, it.shared, int(it.rows), int(it.cols), it.scheme, it.smallestScale(), it})
		}
	}
	return list
}

// ReadMatrix reads the weights of a matrix of the plan, [Rows][Cols]. It fails with *TensorError if one is not finite.
func (p *Plan) ReadMatrix(dst []float32, m Matrix) error {
	w, err := p.weights(m.item)
	if err != nil {
		return err
	}
	dst = dst[:m.Rows*m.Cols]
	if err := w.Read(dst, m.Slice*m.Rows, m.Rows); err != nil {
		return err
	}
	for i, v := range dst {
		if !floats.Finite(v) {
			src := m.item.src
			e := &quantizer.TensorError{File: p.ck.Files()[src.File].Name, Tensor: src.Name, Slice: -1, Row: int64(i / m.Cols), Err: &rounding.NonFiniteError{Column: i % m.Cols, Value: v}}
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

// CheckOutput refuses, before any work, a path that Write could not put the file at.
func (p *Plan) CheckOutput(path string) error { return p.checkOutput(path) }

// RowReader gives rows of codes that were chosen before the file is written. It is called from several goroutines.
type RowReader interface {
	// ReadRow reads a row's codes, its groups' scales, and their zero points, whole ones, unless zeros is nil.
	ReadRow(row int, codes []int8, scales []float32, zeros []int8) error
}

// Chosen are codes for a plan that were chosen elsewhere, with calibration data.
type Chosen struct {
	// Rows gives the rows of a matrix; nil: Write chooses its codes. It may be nil itself.
	Rows func(m Matrix) RowReader
	// Importance gives what errors count by column, for matrices that Write searches scales of; nil: all the same. It may
	// be nil itself. See RowQuantizer.Weigh.
	Importance func(m Matrix) []float32
	// Calibration goes into the file's provenance.
	Calibration *Calibration
}

// Calibration says what codes were chosen by and with what data.
type Calibration struct {
	Algorithm string `json:"algorithm"`
	// Parameters of the algorithm.
	Parameters map[string]any `json:"parameters,omitempty"`
	// Source is "self" for text that the model wrote, else what kind of file it was: "text", "tokens" or "imatrix".
	Source string `json:"source"`
	// SHA256 is that of the file, or of the token ids as little-endian int32 if the model wrote the text.
	SHA256    string  `json:"source_sha256"`
	Tokens    int     `json:"tokens"`
	Sequences int     `json:"sequences"`
	Seed      *uint64 `json:"seed,omitempty"`
	// Fallbacks counts the matrices that calibration did not reach, or did not improve.
	Fallbacks int `json:"fallbacks,omitempty"`
}

// SetChosen has Write take codes that were chosen elsewhere. It must not run while Write does.
func (p *Plan) SetChosen(c *Chosen) error {
	for _, m := range p.Matrices() {
		it := m.item
		if m.Slice == 0 {
			it.chosen = &itemChosen{make([]RowReader, m.Slices), make([][]float32, m.Slices), true}
		}
		if c.Rows != nil {
			it.chosen.rows[m.Slice] = c.Rows(m)
		}
		if c.Importance != nil {
			it.chosen.importance[m.Slice] = c.Importance(m)
		}
		if it.chosen.rows[m.Slice] != nil && it.realZeros { // a RowReader gives whole zero points
			it.realZeros, it.line.ZeroPoints = false, rounding.WholeZeros
		}
		it.chosen.calibrated = it.chosen.calibrated && (it.chosen.rows[m.Slice] != nil || it.chosen.importance[m.Slice] != nil)
	}
	p.calibration = c.Calibration
	if err := p.build(); err != nil {
		return err
	}
	p.OutputBytes = p.image.Size()
	return nil
}

// chosenRow puts row n of the unit into row i of the block.
func (w *worker) chosenRow(it *item, slice int, row0, n, i int64, src rowReader) error {
	x := src(w.x, n)
	at, g := int(i)*w.stride, int(i)*w.groups
	codes, scales := w.codes[at:at+int(it.cols)], w.scales[g:g+w.groups]
	var zeros []int8
	if it.scheme.Mapping == gqf.MappingAsymmetric {
		zeros = w.zeros[g : g+w.groups]
	}
	if err := it.chosen.rows[slice].ReadRow(int(row0+n), codes, scales, zeros); err != nil {
		return w.rowError(it, slice, row0+n, err)
	}
	half := float32(0)
	if it.scheme.Mapping == gqf.MappingHalfStep {
		half = 0.5
	}
	group := it.scheme.Group
	if group == 0 || group > len(x) {
		group = len(x)
	}
	for k, v := range x {
		if !floats.Finite(v) {
			return w.rowError(it, slice, row0+n, &rounding.NonFiniteError{Column: k, Value: v})
		}
		z := float32(0)
		if zeros != nil {
			z = float32(zeros[k/group])
		}
		e := v - float32((float32(codes[k])-z+half)*scales[k/group])
		lane := k % len(w.acc.Noise)
		w.acc.Noise[lane] += float64(float32(e * e))
		w.acc.Signal[lane] += float64(float32(v * v))
	}
	w.countSmallScales(x, i)
	return nil
}
