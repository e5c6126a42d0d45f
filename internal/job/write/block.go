package write

import (
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/quantizer"
)

// Block is a few rows of an item on their way from the input to the output.
type Block struct {
	job  *Job
	Item *plan.Quantized // that the buffers fit
	Unit Unit            // that the rows belong to
	// Codes in rows of stride, 0 past K, with the scales and zero points of groups.
	Codes      []int8
	Scales     []float32
	Zeros      []int8    // all 0 unless the mapping is asymmetric
	FloatZeros []float32 // zero points of items with floating-point zero points, instead
	rowBlocks  []byte    // of schemes with a type of blocks, instead of all of these
	Bias       []float32 // of all rows of the unit, padded to whole blocks
	Stride     int
	Groups     int
}

func (b *Block) fit(j *Job, it *plan.Quantized) {
	b.job, b.Item, b.Stride, b.Groups = j, it, int((it.Cols+31)/32*32), it.Scheme.Groups(int(it.Cols))
	clear(buffer.Grow(&b.Codes, BlockRows*b.Stride))
	buffer.Grow(&b.Scales, BlockRows*b.Groups)
	clear(buffer.Grow(&b.Zeros, BlockRows*b.Groups))
	buffer.Grow(&b.FloatZeros, BlockRows*b.Groups)
	if t := it.Scheme.Type; t != 0 {
		buffer.Grow(&b.rowBlocks, BlockRows*int(t.Size(it.Cols)))
	}
}

// Fail adds tensor, row of the unit and advice to an error.
func (b *Block) Fail(row int64, err error) error {
	it := b.Item
	switch err := err.(type) {
	case *rounding.ScaleError:
		err.Advice = b.job.In.Advice(it, err)
	case *rounding.SumError:
		err.Advice = b.job.In.Advice(it, nil)
	}
	e := &quantizer.TensorError{File: b.job.fileOf(&it.Entry), Tensor: it.Src.Name, Slice: -1, Row: b.Row0() + row, Err: err}
	if it.Slices > 1 {
		e.Slice = b.Unit.Slice
	}
	return e
}

// Row0 is the first row of the unit in its slice, rows how many rows the unit has.
func (b *Block) Row0() int64 { return b.Unit.First * BlockRows }
func (b *Block) Rows() int64 { return b.Unit.Rows(b.Item) }

// Row is row i of the block.
func (b *Block) Row(i int64) rounding.Row {
	if t := b.Item.Scheme.Type; t != 0 {
		n := int(t.Size(b.Item.Cols))
		return rounding.Row{Blocks: b.rowBlocks[int(i)*n:][:n]}
	}
	at, g := int(i)*b.Stride, int(i)*b.Groups
	r := rounding.Row{Codes: b.Codes[at:][:b.Item.Cols], Scales: b.Scales[g:][:b.Groups]}
	if b.Item.Scheme.Mapping == gqf.MappingAsymmetric {
		r.Zeros = b.Zeros[g:][:b.Groups]
	}
	return r
}

// RowFloatZeros are the floating-point zero points of row i.
func (b *Block) RowFloatZeros(i int64) []float32 { return b.FloatZeros[int(i)*b.Groups:][:b.Groups] }

// GrowBias makes room for the biases of a unit's rows, padded to whole panels.
func (b *Block) GrowBias(rows int64) []float32 {
	return buffer.Grow(&b.Bias, int((rows+BlockRows-1)/BlockRows*BlockRows))
}

// PadBias repeats the bias of the last of a unit's rows, as the panel's codes are repeated.
func (b *Block) PadBias(rows int64) {
	for i := rows; i < int64(len(b.Bias)); i++ {
		b.Bias[i] = b.Bias[rows-1]
	}
}

// Holds checks that the layouts hold the scales of row i, whose codes were taken over.
func (b *Block) Holds(i int64) error {
	dtype := b.Item.Scheme.ScaleDtype
	for g, s := range b.Row(i).Scales {
		if floats.Abs(s) > dtype.Max() || s < 0 && b.Item.Scheme.Positive() {
			return &rounding.ScaleError{Group: g, Scale: s, Dtype: dtype, Smallest: b.Item.Smallest}
		}
	}
	return b.TooSmall(i)
}

// TooSmall finds a scale in row i, whose codes were taken over, that a layout cannot hold.
func (b *Block) TooSmall(i int64) error {
	for g, s := range b.Row(i).Scales {
		if floats.Abs(s) < b.Item.Smallest && !(s == 0 && plan.HoldsZeroScales(b.Item.Variants)) {
			return &rounding.ScaleError{Group: g, Scale: s, Dtype: b.Item.Scheme.ScaleDtype, Smallest: b.Item.Smallest}
		}
	}
	return nil
}
