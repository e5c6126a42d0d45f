package fromcheckpoint

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// rowQuantizer makes codes of a checkpoint's rows, or takes codes that were chosen before.
type rowQuantizer struct {
	in      *Input
	codes   *plan.Codes
	item    *plan.Quantized // that rq and weights are of
	rq      *rounding.RowQuantizer
	weights *safetensors.Weights

	x, gathered []float32 // a row, and the gathered rows of a unit
	piece       []byte
	quantized   []float32 // the row that was quantized last
	dequantized []float32 // the weights of a row of chosen codes

	// Of the unit.
	acc         vec.ErrorSum
	smallScales int64 // groups, see countGroups
	recovered   write.Recovered
}

func (in *Input) Reader(c *plan.Codes) write.Reader { return &rowQuantizer{in: in, codes: c} }

// fit prepares the quantizer for an item.
func (r *rowQuantizer) fit(it *plan.Quantized) (err error) {
	if r.item == it {
		return nil
	}
	if r.rq, err = rounding.NewRowQuantizer(it.Scheme, int(it.Cols)); err != nil {
		return fmt.Errorf("tensor %q: %w", it.Name(), err)
	}
	if r.weights, err = r.in.Weights(it.Src, it.Transposed); err != nil {
		return err
	}
	buffer.Grow(&r.x, int(it.Cols))
	r.rq.LimitScales(it.Smallest)
	r.rq.Recover(r.precision(it))
	r.item = it
	return nil
}

// precision is the format of scales that holds the weights that are rounded.
func (r *rowQuantizer) precision(it *plan.Quantized) packing.ScaleDtype {
	if r.in.plan.Factors[it.Src.Name] != nil {
		return packing.ScaleF32
	}
	return it.Src.Precision()
}

// Begin prepares to quantize the rows of the block's unit, or to read the codes that were chosen.
func (r *rowQuantizer) Begin(b *write.Block, found *write.Result) (fill func(n, i int64) error, end func() error, err error) {
	it := b.Item
	if err := r.fit(it); err != nil {
		return nil, nil, err
	}
	if err := r.in.sumScales(&it.Entry, b.Unit, found); err != nil {
		return nil, nil, err
	}
	rows := r.rowsOf(b, found)
	if err := ReadBias(r.in.Ck, b); err != nil {
		return nil, nil, err
	}
	r.acc, r.smallScales, r.recovered = vec.ErrorSum{}, 0, write.Recovered{}
	m := it.Matrix(b.Unit.Slice)
	if chosen := r.codes.Chosen(m); chosen != nil {
		fill = func(n, i int64) error { return r.take(b, chosen, rows(r.x, n), n, i) }
	} else {
		importance := r.codes.ImportanceOf(m)
		fill = func(n, i int64) error {
			r.rq.Weigh(importance.Row(int(b.Row0()+n)), false)
			return r.quantize(b, rows(r.x, n), n, i)
		}
	}
	return fill, func() (err error) {
		found.SmallScales, found.Recovered = r.smallScales, r.recovered
		if found.Noise, found.Signal = r.acc.Total(); !floats.Finite(float32(found.Noise)) || !floats.Finite(float32(found.Signal)) {
			found.Noise, found.Signal, err = r.largeErrors(b, fill)
		}
		return err
	}, nil
}

// quantize quantizes x, row n of the unit, into row i of the block.
func (r *rowQuantizer) quantize(b *write.Block, x []float32, n, i int64) error {
	dst := b.Row(i)
	var err error
	if dst.Blocks != nil {
		err = r.rq.QuantizeBlocks(dst.Blocks, x, &r.acc)
	} else if b.Item.Zeros == packing.ZeroF32 {
		err = r.rq.QuantizeFloatZeros(dst.Codes, dst.Scales, b.RowFloatZeros(i), x, &r.acc)
	} else {
		err = r.rq.Quantize(dst.Codes, dst.Scales, dst.Zeros, x, &r.acc)
	}
	if err != nil {
		return b.Fail(n, err)
	}
	r.countGroups(x, dst.Scales, r.rq.Recovered)
	return nil
}

// take puts chosen codes of x, row n of the unit, into row i of the block.
func (r *rowQuantizer) take(b *write.Block, chosen plan.RowReader, x []float32, n, i int64) error {
	it, dst := b.Item, b.Row(i)
	if err := chosen.ReadRow(int(b.Row0()+n), dst); err != nil {
		return b.Fail(n, err)
	}
	dequantized := buffer.Grow(&r.dequantized, len(x))
	it.Scheme.Shape(1, len(x)).Dequantize(dequantized, dst)
	for k, v := range x {
		if !floats.Finite(v) {
			return b.Fail(n, &rounding.NonFiniteError{Column: k, Value: v})
		}
		rounding.AddSquares(&r.acc, k, v, v-dequantized[k])
	}
	precision := r.precision(it)
	r.countGroups(x, dst.Scales, func(g int) bool {
		same := precision != packing.ScaleNone && it.Scheme.Type == 0
		any := false
		for k, v := range r.rq.GroupOf(x, g) {
			any = any || v != 0
			if same = same && precision.Round(r.rq.GroupOf(dequantized, g)[k]) == v; !same {
				return false
			}
		}
		return any
	})
	return nil
}

// countGroups counts the groups of the row x that are not all zero, and the recovered groups. Of
// the others it counts those that have a subnormal scale, or the smallest that the layouts hold:
// their weights are so small that the scale is less precise than elsewhere, or greater than they
// need.
func (r *rowQuantizer) countGroups(x, scales []float32, recovered func(g int) bool) {
	r.quantized = x
	if r.item.Scheme.Type != 0 {
		return // a block has scales of two kinds, and an error that the noise shows
	}
	few := r.item.Scheme.ScaleDtype.SmallestNormal()
	for g, s := range scales {
		if recovered(g) {
			r.recovered.Groups++
			r.recovered.Exact++
			continue
		}
		size := floats.Abs(s)
		small := size <= r.item.Smallest || size < few
		// Groups of zeros have scale 1, or the smallest.
		if (small || s == 1) && !slices.ContainsFunc(r.rq.GroupOf(x, g), func(v float32) bool { return v != 0 }) {
			continue
		}
		r.recovered.Groups++
		if small {
			r.smallScales++
		}
	}
}

// largeErrors sums the squares of a unit's errors and weights where package vec cannot, because its
// squares are float32. It quantizes the rows again.
func (r *rowQuantizer) largeErrors(b *write.Block, fill func(n, i int64) error) (noise, signal float64, err error) {
	it := b.Item
	stands := make([]float32, it.Cols)
	shape := it.Scheme.Shape(1, int(it.Cols))
	for n := range b.Rows() {
		if err := fill(n, 0); err != nil {
			return 0, 0, err
		}
		row := b.Row(0)
		if it.Zeros == packing.ZeroF32 {
			shape.DequantizeFloats(stands, row.Codes, row.Scales, b.FloatZeros)
		} else {
			shape.Dequantize(stands, row)
		}
		for k, v := range r.quantized {
			e := float64(v) - float64(stands[k])
			noise += float64(e * e)
			signal += float64(float64(v) * float64(v))
		}
	}
	return noise, signal, nil
}

// rowsOf returns a function that gives row n of the block's unit as float32, in dst or in memory of
// its own, and sums the bytes of all rows in the checkpoint. Rows of a transposed slice are strided
// there and are all read at once.
func (r *rowQuantizer) rowsOf(b *write.Block, found *write.Result) func(dst []float32, n int64) []float32 {
	it, rows := b.Item, b.Rows()
	first := int(int64(b.Unit.Slice)*it.Rows + b.Row0())
	if it.Transposed {
		gathered := buffer.Grow(&r.gathered, int(rows*it.Cols))
		r.weights.Widen(gathered, first, int(rows))
		return func(_ []float32, n int64) []float32 { return gathered[n*it.Cols : (n+1)*it.Cols] }
	}
	found.Crc = crc32c.Checksum(r.weights.Bytes(first, int(rows)))
	factors := r.in.plan.Factors[it.Src.Name]
	return func(dst []float32, n int64) []float32 {
		dst = dst[:it.Cols]
		r.weights.Widen(dst, first+int(n), 1)
		factors.Multiply(dst, first+int(n), len(dst))
		return dst
	}
}

// Sum puts the checksum of bytes of an item into the unit's findings, and the checksums of the
// block scales that are multiplied into the item.
func (r *rowQuantizer) Sum(e *plan.Entry, off, n int64, u write.Unit, found *write.Result) error {
	for end := off + n; off < end; {
		b := buffer.Grow(&r.piece, int(min(end-off, write.PieceBytes)))
		if err := r.in.Ck.ReadAt(*e.Src, b, off); err != nil {
			return err
		}
		found.Crc, off = crc32c.Update(found.Crc, b), off+int64(len(b))
	}
	return r.in.sumScales(e, u, found)
}
