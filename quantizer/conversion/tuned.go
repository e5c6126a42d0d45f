package conversion

import (
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/packing"
)

// Tuned is the result of tuning after calibration, for the writing of a plan: codes that replace the
// codes of calibration, and vectors that replace the checkpoint's. Layouts, headers and sizes stay.
type Tuned struct {
	// Rows gives the tuned codes of a matrix; nil: tuning left them alone. It is called from several
	// goroutines.
	Rows func(m Matrix) RowReader
	// Vectors are the bytes of unquantized vectors that tuning changed, in the checkpoint's dtype, by
	// their names in the checkpoint.
	Vectors map[string][]byte
	// Tuning goes into the file's provenance.
	Tuning *Tuning
}

// Tuning records how a file's numbers were tuned, and with which data.
type Tuning struct {
	// Mode is the kind of tuning, as the recipe names it.
	Mode string `json:"mode"`
	// Parameters of the optimizer.
	Parameters map[string]any `json:"parameters,omitempty"`
	// Source, SHA256, Tokens, Sequences and Seed describe the text as in Calibration. HeldOut of the
	// tokens were held out to choose the step.
	Source    string  `json:"source"`
	SHA256    string  `json:"source_sha256"`
	Tokens    int     `json:"tokens"`
	Sequences int     `json:"sequences"`
	HeldOut   int     `json:"held_out_tokens"`
	Seed      *uint64 `json:"seed,omitempty"`
	// Steps were trained; Step is the step whose numbers the file has.
	Steps int `json:"steps"`
	Step  int `json:"step"`
	// Vectors is the number of norms whose gains differ from the checkpoint's.
	Vectors int `json:"norms,omitempty"`
}

// rows is the tuned codes of a matrix; nil without.
func (t *Tuned) rows(m Matrix) RowReader {
	if t == nil || t.Rows == nil {
		return nil
	}
	return t.Rows(m)
}

// vector is the tuned bytes of an item; nil without.
func (c *CalibratedCodes) vector(e *entry) []byte {
	if c.Tuned == nil {
		return nil
	}
	return c.Tuned.Vectors[e.src.Name]
}

// tuning is the account of tuning for the provenance; nil without.
func (c *CalibratedCodes) tuning() *Tuning {
	if c.Tuned == nil {
		return nil
	}
	return c.Tuned.Tuning
}

// piece is a range of the bytes that the output has for an unquantized item: tuned ones, or the
// input's. crc is the checksum of the input's bytes.
func (j *job) piece(e *entry, first, count int64, buf *[]byte) (b []byte, crc uint32, err error) {
	b, err = j.plan.in.piece(e, first, count, buf)
	if err != nil {
		return nil, 0, err
	}
	crc = crc32c.Checksum(b)
	if own := j.calibrated.vector(e); own != nil {
		b = own[first:][:count]
	}
	return b, crc, nil
}

// reader is the source's, or reads a tuned vector, whose rows are its elements.
func (c *CalibratedCodes) reader(from modelSource, it *unquantized) (func(dst []float32, slice int, row, n int64), error) {
	own := c.vector(&it.entry)
	if own == nil {
		return from.reader(it)
	}
	size := int64(it.src.Dtype.Bits() / 8)
	return func(dst []float32, _ int, row, n int64) {
		safetensors.Widen(dst, own[row*size:(row+n)*size], it.src.Dtype)
	}, nil
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
	for _, it := range p.items {
		u, ok := it.(*unquantized)
		if !ok || len(u.src.Shape) != 1 {
			continue
		}
		switch u.src.Dtype {
		case packing.F32, packing.F16, packing.BF16:
			list = append(list, Vector{u.src.Name, u.src.Dtype, int(u.src.Shape[0])})
		}
	}
	return list
}
