package conversion

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// worker holds one goroutine's buffers, all reused.
type worker struct {
	*job
	item *quantized // that the buffers fit
	rq   *rounding.RowQuantizer
	// weights of the item's tensor; unset for a repack.
	weights *safetensors.Weights
	opened  *quantized // that weights are of
	x       []float32
	block   []float32 // transposed: gathered rows

	// A block of rows, as they are quantized; codes in rows of stride, 0 past K.
	codes      []int8
	scales     []float32
	zeros      []int8    // all 0 unless the mapping is asymmetric
	floatZeros []float32 // zero points of items with floating-point ones, instead
	rowBlocks  []byte    // of schemes with a type of blocks, instead of all of these
	stride     int
	groups     int
	smallest   float32 // magnitude of a scale that every layout can hold

	scatter     scatter
	converted   []byte // unquantized rows of a .gguf file
	bias        []float32
	piece       []byte // of an unquantized item
	sinks       []sink
	acc         vec.ErrorSum
	smallScales int64     // groups of the unit, see countGroups
	recovered   Recovered // groups of the unit
	quantized   []float32 // the row that was quantized last
	dequantized []float32 // the weights of a row of calibrated codes
}

func (w *worker) do(i int) error {
	u, r := w.units.at(i), &unitResult{}
	if err := w.ahead.Wait(i - w.share.first); err != nil {
		return err
	}
	if err := w.unit(u, r); err != nil {
		return err
	}
	w.ahead.Done(i - w.share.first)
	if w.tally != nil {
		w.tally.add(i, *r)
	}
	if w.done != nil {
		w.done(u, *r)
	}
	if w.plan.opts.Progress != nil {
		w.plan.opts.Progress(u.progressBytes())
	}
	return nil
}

// unit does a unit, which reads the input.
func (w *worker) unit(u unit, r *unitResult) error {
	var err error
	fault := w.plan.in.guard(func() error {
		switch it := u.item.(type) {
		case *unquantized:
			err = w.target.copy(w, it, u, r)
		case *quantized:
			switch old := w.reuse.of(it); {
			case old != nil:
				err = w.takeOver(it, u, old)
			case u.sum:
				err = w.sum(it, u, r)
			default:
				err = w.blocks(it, u, r)
			}
		}
		return nil
	})
	if fault != nil {
		return fault
	}
	return err
}

func (w *worker) sum(it *quantized, u unit, r *unitResult) error {
	var err error
	r.crc, err = w.sumBytes(it.src, u.first, u.count)
	return err
}

// pieceBytes is how many bytes are read at a time where they are read once: a piece stays in a core's
// L2 cache.
const pieceBytes = 256 << 10

// sumBytes returns the CRC32C of n bytes of a tensor of the checkpoint, from byte off on.
func (w *worker) sumBytes(src *safetensors.Tensor, off, n int64) (crc uint32, err error) {
	for end := off + n; off < end; {
		b := buffer.Grow(&w.piece, int(min(end-off, pieceBytes)))
		if err := w.plan.ck.ReadAt(*src, b, off); err != nil {
			return 0, err
		}
		crc, off = crc32c.Update(crc, b), off+int64(len(b))
	}
	return crc, nil
}

// blocks quantizes rows of one slice, packs them as the output stores them and
// writes them at their places.
func (w *worker) blocks(it *quantized, u unit, r *unitResult) error {
	if err := w.fit(it); err != nil {
		return err
	}
	fill, err := w.plan.in.filler(w, it, u, r)
	if err != nil {
		return err
	}
	for _, s := range w.sinks {
		s.begin(u.rows(it))
	}
	w.acc, w.smallScales, w.recovered = vec.ErrorSum{}, 0, Recovered{}
	rows := u.rows(it)
	for first := int64(0); first < rows; first += blockRows {
		n := min(blockRows, rows-first)
		for i := range n {
			if err := fill(first+i, i); err != nil {
				return err
			}
		}
		for _, s := range w.sinks {
			if row, err := s.pack(w, int(first), int(n)); err != nil {
				return w.rowError(it, u.slice, u.first*blockRows+first+int64(row), err)
			}
		}
	}
	r.smallScales, r.recovered = w.smallScales, w.recovered
	if r.noise, r.signal = w.acc.Total(); !floats.Finite(float32(r.noise)) || !floats.Finite(float32(r.signal)) {
		if r.noise, r.signal, err = w.largeErrors(fill, rows); err != nil {
			return err
		}
	}
	for _, s := range w.sinks {
		if err := s.write(w, u); err != nil {
			return err
		}
	}
	return nil
}

// largeErrors sums the squares of a unit's errors and weights where these are too large for package vec, whose squares are
// float32: it quantizes the rows again.
func (w *worker) largeErrors(fill func(n, i int64) error, rows int64) (noise, signal float64, err error) {
	stands := make([]float32, w.item.cols)
	shape := w.item.scheme.Shape(1, int(w.item.cols))
	for n := range rows {
		if err := fill(n, 0); err != nil {
			return 0, 0, err
		}
		if w.item.zeros == packing.ZeroF32 {
			for k, q := range w.codes[:w.item.cols] {
				g := k / shape.Group
				stands[k] = float32(float32(float32(q)*w.scales[g]) + w.floatZeros[g])
			}
		} else {
			shape.Dequantize(stands, w.rowCodes(0))
		}
		for k, v := range w.quantized {
			e := float64(v) - float64(stands[k])
			noise += float64(e * e)
			signal += float64(float64(v) * float64(v))
		}
	}
	return noise, signal, nil
}

// countGroups counts the groups of the row x, quantized into row i of the block, that are not all
// zero, and the recovered ones, as recovered reports them (nil: none is). Of the others it counts
// those that have a subnormal scale or the smallest that the layouts hold: their weights are so small that the scale
// is less precise than elsewhere, or greater than they need.
func (w *worker) countGroups(x []float32, i int64, recovered func(g int) bool) {
	w.quantized = x
	if w.item.scheme.Type != 0 {
		return // a block has scales of two kinds, and an error that the noise shows
	}
	few := w.item.scheme.ScaleDtype.SmallestNormal()
	for g, s := range w.scales[int(i)*w.groups : (int(i)+1)*w.groups] {
		if recovered != nil && recovered(g) {
			w.recovered.Groups++
			w.recovered.Exact++
			continue
		}
		size := floats.Abs(s)
		small := size <= w.smallest || size < few
		// Groups of zeros have scale 1, or the smallest.
		if (small || s == 1) && !slices.ContainsFunc(w.rq.GroupOf(x, g), func(v float32) bool { return v != 0 }) {
			continue
		}
		w.recovered.Groups++
		if small {
			w.smallScales++
		}
	}
}

// rowCodes is row i of the block.
func (w *worker) rowCodes(i int64) rounding.Row {
	if t := w.item.scheme.Type; t != 0 {
		n := int(t.Size(w.item.cols))
		return rounding.Row{Blocks: w.rowBlocks[int(i)*n:][:n]}
	}
	at, g := int(i)*w.stride, int(i)*w.groups
	r := rounding.Row{Codes: w.codes[at:][:w.item.cols], Scales: w.scales[g:][:w.groups]}
	if w.item.scheme.Mapping == gqf.MappingAsymmetric {
		r.Zeros = w.zeros[g:][:w.groups]
	}
	return r
}

// row quantizes row n of the unit into row i of the block.
func (w *worker) row(it *quantized, slice int, row0, n, i int64, src rowReader) error {
	x := src(w.x, n)
	dst := w.rowCodes(i)
	var err error
	if dst.Blocks != nil {
		err = w.rq.QuantizeBlocks(dst.Blocks, x, &w.acc)
	} else if it.zeros == packing.ZeroF32 {
		err = w.rq.QuantizeFloatZeros(dst.Codes, dst.Scales, w.floatZeros[int(i)*w.groups:][:w.groups], x, &w.acc)
	} else {
		err = w.rq.Quantize(dst.Codes, dst.Scales, dst.Zeros, x, &w.acc)
	}
	if err != nil {
		return w.rowError(it, slice, row0+n, err)
	}
	recovered := w.rq.Recovered
	if !w.rq.AnyRecovered() {
		recovered = nil
	}
	w.countGroups(x, i, recovered)
	return nil
}

// rowError puts tensor and row to an error of the row quantizer, and what to do in this job.
func (w *worker) rowError(it *quantized, slice int, row int64, err error) error {
	switch err := err.(type) {
	case *rounding.ScaleError:
		err.Advice = w.plan.in.scaleAdvice(it, err)
	case *rounding.SumError:
		err.Advice = w.plan.in.scaleAdvice(it, nil)
	}
	e := &quantizer.TensorError{File: w.plan.in.file(&it.entry), Tensor: it.src.Name, Slice: -1, Row: row, Err: err}
	if it.slices > 1 {
		e.Slice = slice
	}
	return e
}

// fit makes the buffers fit the item.
func (w *worker) fit(it *quantized) error {
	if w.item == it {
		return nil
	}
	var err error
	if w.rq, err = rounding.NewRowQuantizer(it.scheme, int(it.cols)); err != nil {
		return fmt.Errorf("tensor %q: %w", it.name(), err)
	}
	buffer.Grow(&w.x, int(it.cols))
	w.stride, w.groups = int((it.cols+31)/32*32), it.scheme.Groups(int(it.cols))
	clear(buffer.Grow(&w.codes, blockRows*w.stride))
	buffer.Grow(&w.scales, blockRows*w.groups)
	clear(buffer.Grow(&w.zeros, blockRows*w.groups))
	buffer.Grow(&w.floatZeros, blockRows*w.groups)
	if t := it.scheme.Type; t != 0 {
		buffer.Grow(&w.rowBlocks, blockRows*int(t.Size(it.cols)))
	}
	if w.sinks, err = w.target.sinks(w.sinks[:0], it); err != nil {
		return fmt.Errorf("tensor %q: %w", it.name(), err)
	}
	w.smallest = it.smallest
	w.rq.LimitScales(w.smallest)
	w.rq.Recover(it.src.Precision())
	w.item = it
	return nil
}

// writebackFrom is the size of a piece from which the system is asked to write it out at once. A page
// that holds smaller pieces is written again and again.
const writebackFrom = 1 << 14

// write writes data to one of the job's files.
func (w *worker) write(file int, b []byte, off int64) error {
	w.target.written(off, b)
	return w.put(file, b, off)
}

// put is write for bytes that are counted already.
func (w *worker) put(file int, b []byte, off int64) error {
	if _, err := w.job.out[file].WriteAt(b, off); err != nil {
		return err
	}
	if w.writeback != nil && len(b) >= writebackFrom {
		w.writeback(file, off, int64(len(b)))
	}
	return nil
}
