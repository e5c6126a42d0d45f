package rounding

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
)

// Shape describes the codes of a matrix and how to dequantize a row.
type Shape struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
	// Group is the number of columns that share a scale, 1 to Cols. The last group may be short.
	Group      int  `json:"group"`
	HalfStep   bool `json:"half_step,omitempty"`
	ZeroPoints bool `json:"zero_points,omitempty"`
	// ZeroShift sets the unit of zero points, 2^-ZeroShift codes.
	ZeroShift int `json:"zero_shift,omitempty"`
	// Type is the ggml type of blocks with codes, scales and minima. Default (F32): no blocks.
	Type gguf.TensorType `json:"type,omitempty"`
}

// Shape is the shape of a matrix with these rows and columns.
func (s Scheme) Shape(rows, cols int) Shape {
	if s.Type != 0 {
		return Shape{Rows: rows, Cols: cols, Group: s.GroupWidth(cols), Type: s.Type}
	}
	return Shape{
		Rows: rows, Cols: cols, Group: s.GroupWidth(cols),
		HalfStep: s.Mapping == gqf.MappingHalfStep, ZeroPoints: s.Mapping == gqf.MappingAsymmetric, ZeroShift: s.ZeroShift(),
	}
}

func (s Shape) Groups() int { return (s.Cols + s.Group - 1) / s.Group }

// blockBytes is the size of a row's blocks; 0 without blocks.
func (s Shape) blockBytes() int {
	if s.Type == 0 {
		return 0
	}
	return int(s.Type.Size(int64(s.Cols)))
}

// Bytes is the size of the output of Codes.Write.
func (s Shape) Bytes() int64 {
	if s.Type != 0 {
		return int64(s.Rows) * int64(s.blockBytes())
	}
	n := int64(s.Cols) + 4*int64(s.Groups())
	if s.ZeroPoints {
		n += int64(s.Groups())
	}
	return int64(s.Rows) * n
}

// Row holds the codes [Cols], scales and, in some shapes, zero points of a row, or only Blocks.
type Row struct {
	Codes  []int8
	Scales []float32
	Zeros  []int8
	Blocks []byte // as in a .gguf file
}

// Dequantize sets dst to the weights: (q - z) s, half-step (q + 1/2) s, or the decoded blocks.
func (s Shape) Dequantize(dst []float32, r Row) {
	if s.Type != 0 {
		if err := s.Type.Decode(dst, r.Blocks); err != nil {
			panic(fmt.Sprintf("rounding: a row of the wrong length: %v", err))
		}
		return
	}
	half, unit := float32(0), 1/float32(int(1)<<s.ZeroShift)
	if s.HalfStep {
		half = 0.5
	}
	for g, scale := range r.Scales {
		z := half
		if r.Zeros != nil {
			z = -float32(float32(r.Zeros[g]) * unit)
		}
		for k := g * s.Group; k < min((g+1)*s.Group, len(r.Codes)); k++ {
			dst[k] = float32((float32(r.Codes[k]) + z) * scale)
		}
	}
}

// DequantizeFloats sets dst to the weights q s + zero of a row with floating-point zero points.
func (s Shape) DequantizeFloats(dst []float32, codes []int8, scales, zeros []float32) {
	for k, q := range codes {
		g := k / s.Group
		dst[k] = float32(float32(q)*scales[g]) + zeros[g]
	}
}

// Codes are the codes, scales and zero points of a matrix, a little more than a byte per weight; or
// its blocks, with the other fields nil.
type Codes struct {
	Shape
	Values []int8    // [Rows][Cols]
	Scales []float32 // [Rows][Groups]
	Zeros  []int8    // [Rows][Groups]; nil without zero points
	Blocks []byte    // of all rows
}

func NewCodes(s Shape) *Codes {
	if s.Type != 0 {
		return &Codes{Shape: s, Blocks: make([]byte, s.Bytes())}
	}
	n := s.Rows * s.Groups()
	c := &Codes{Shape: s, Values: make([]int8, s.Rows*s.Cols), Scales: make([]float32, n)}
	if s.ZeroPoints {
		c.Zeros = make([]int8, n)
	}
	return c
}

func (c *Codes) Row(i int) Row {
	if c.Type != 0 {
		n := c.blockBytes()
		return Row{Blocks: c.Blocks[i*n:][:n:n]}
	}
	n := c.Groups()
	r := Row{Codes: c.Values[i*c.Cols:][:c.Cols:c.Cols], Scales: c.Scales[i*n:][:n:n]}
	if c.Zeros != nil {
		r.Zeros = c.Zeros[i*n:][:n:n]
	}
	return r
}

// ReadRow copies row i to dst. The error is always nil.
func (c *Codes) ReadRow(i int, dst Row) error {
	r := c.Row(i)
	copy(dst.Codes, r.Codes)
	copy(dst.Scales, r.Scales)
	copy(dst.Zeros, r.Zeros)
	copy(dst.Blocks, r.Blocks)
	return nil
}

// Equal reports whether all codes, scales (by their bits) and zero points are equal.
func (c *Codes) Equal(o *Codes) bool {
	bits := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
	return o != nil && c.Shape == o.Shape && slices.Equal(c.Values, o.Values) && slices.EqualFunc(c.Scales, o.Scales, bits) &&
		slices.Equal(c.Zeros, o.Zeros) && bytes.Equal(c.Blocks, o.Blocks)
}

func (c *Codes) DequantizeRow(dst []float32, i int) { c.Dequantize(dst, c.Row(i)) }

// Write writes all blocks, or all codes, then all scales, then all zero points. b keeps the error.
func (c *Codes) Write(b *bufio.Writer) {
	for _, list := range []any{c.Blocks, c.Values, c.Scales, c.Zeros} {
		_ = binary.Write(b, binary.LittleEndian, list)
	}
}

// StoredCodes reads the output of Codes.Write from offset At of a file.
type StoredCodes struct {
	Shape
	At   int64
	File io.ReaderAt
}

// ReadRow reads row i. Several goroutines may read at once.
func (s *StoredCodes) ReadRow(i int, dst Row) error {
	row, groups := int64(i), int64(s.Groups())
	if s.Type != 0 {
		n := s.blockBytes()
		return s.read(row*int64(n), dst.Blocks[:n])
	}
	scales := int64(s.Rows) * int64(s.Cols)
	zeros := scales + int64(s.Rows)*4*groups
	return cmp.Or(s.read(row*int64(s.Cols), dst.Codes), s.read(scales+row*4*groups, dst.Scales), s.read(zeros+row*groups, dst.Zeros))
}

// read reads a slice of numbers from a byte of the codes on.
func (s *StoredCodes) read(at int64, list any) error {
	return binary.Read(io.NewSectionReader(s.File, s.At+at, s.Bytes()-at), binary.LittleEndian, list)
}

func LoadCodes(s Shape, readRow func(i int, dst Row) error) (*Codes, error) {
	c := NewCodes(s)
	for i := range s.Rows {
		if err := readRow(i, c.Row(i)); err != nil {
			return nil, err
		}
	}
	return c, nil
}
