package kernels

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/kernels/floatmm"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
)

// floatWeights are F32, F16 or BF16 weights, packed into memory of their own.
type floatWeights struct {
	floatOperator
	weights *floatmm.Weights
}

// Rows is the Operator of weights that are read row by row in every Forward, such as rows of a
// mapped checkpoint or dequantized rows. A Rows holds a panel of rows for each goroutine, and gives
// the same bits as NewFloat for the same weights.
type Rows struct {
	floatOperator
	source floatmm.Source
}

type floatOperator struct {
	header packing.Header
	set    *floatmm.Set
	bf16   bool
	panels int
	logged []atomic.Bool // by tile
	log    func(Choice)
	mul    func(s *floatmm.Scratch, dst, x []float32, m, first, last int)
}

// NewFloat makes the operator of a LayoutPlain payload of F32, F16 or BF16, without bias: the
// baseline for quantized operators. A sum is a single chain of fused multiply-adds in order of
// column, see package floatmm. Other payloads are an *UnsupportedError. NewFloat copies the
// weights: F16 as float32, BF16 as BF16. data may be mapped, see NewLinear.
func NewFloat(h packing.Header, data []byte, o Options) (Operator, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	if h.Layout != packing.LayoutPlain || !slices.Contains([]packing.Dtype{packing.F32, packing.F16, packing.BF16}, h.Dtype) {
		return nil, &UnsupportedError{h, "floating-point operators are for plain F32, F16 and BF16"}
	}
	size, err := h.DataSize()
	if err != nil {
		return nil, err
	}
	switch {
	case int64(len(data)) != size:
		return nil, fmt.Errorf("kernels: %d bytes of data, the packed header needs %d", len(data), size)
	case size == 0 || h.Rows > math.MaxInt32 || h.Cols > math.MaxInt32:
		return nil, &UnsupportedError{h, "no product has this shape"}
	}
	f := &floatWeights{}
	if err := f.init(h, o); err != nil {
		return nil, err
	}
	w := f.set.New(h.Dtype, int(h.Rows), int(h.Cols), nil)
	f.weights, f.panels, f.bf16, f.mul = w, w.Panels(), w.BF16(), w.Mul
	pool := NewPool(0)
	defer pool.Close()
	scratch := make([]floatmm.Scratch, pool.Threads())
	batch := max(1, f.panels/(4*pool.Threads()))
	pool.Run((f.panels+batch-1)/batch, func(worker, part int) {
		w.Fill(&scratch[worker], data, part*batch, min((part+1)*batch, f.panels))
	})
	return f, nil
}

// NewRows makes the operator of rows x cols weights. read fills dst with the weights of a row. The
// operator calls read from several goroutines, once for each row in every pass; a pass covers up to
// some thousand rows of activations. bias has rows elements or is nil.
func NewRows(rows, cols int, read func(dst []float32, row int), bias []float32, o Options) (*Rows, error) {
	switch {
	case rows < 1 || cols < 1 || rows > math.MaxInt32 || cols > math.MaxInt32:
		return nil, fmt.Errorf("kernels: no product has %d x %d weights", rows, cols)
	case bias != nil && len(bias) != rows:
		return nil, fmt.Errorf("kernels: %d biases for %d rows", len(bias), rows)
	}
	r := &Rows{source: floatmm.Source{Rows: rows, Cols: cols, Read: read, Bias: bias}}
	if err := r.init(packing.PlainHeader(packing.F32, uint64(rows), uint64(cols)), o); err != nil {
		return nil, err
	}
	r.panels = r.source.Panels(r.set)
	r.mul = func(s *floatmm.Scratch, dst, x []float32, m, first, last int) {
		r.set.MulRows(s, dst, x, m, &r.source, first, last)
	}
	return r, nil
}

// NewRowsBF16 is NewRows for rows of little-endian BF16, without bias. data may be mapped, see
// NewLinear. Products read BF16 without conversion.
func NewRowsBF16(rows, cols int, data []byte, o Options) (*Rows, error) {
	read := func(dst []float32, row int) { vec.WidenBF16(dst, data[2*row*cols:][:2*cols]) }
	r, err := NewRows(rows, cols, read, nil, o)
	if err != nil {
		return nil, err
	}
	if len(data) != 2*rows*cols {
		return nil, fmt.Errorf("kernels: %d bytes of BF16 for %d x %d weights", len(data), rows, cols)
	}
	r.source.BF16, r.bf16 = data, true
	return r, nil
}

func (f *floatWeights) ReadRow(dst []float32, row int) { f.weights.Row(dst, row) }

func (r *Rows) ReadRow(dst []float32, row int) { r.source.Read(dst[:r.Cols()], row) }

func (f *floatOperator) init(h packing.Header, o Options) error {
	features, err := o.features()
	if err != nil {
		return err
	}
	set := floatmm.Sets.For(features).Code
	f.header, f.set, f.logged, f.log = h, set, make([]atomic.Bool, len(set.Tiles)), o.log()
	return nil
}

func (f *floatOperator) Rows() int { return int(f.header.Rows) }

func (f *floatOperator) Cols() int { return int(f.header.Cols) }

// Header describes the payload; the header of NewRows is plain F32.
func (f *floatOperator) Header() packing.Header { return f.header }

func (f *floatOperator) tile(m int) int {
	return max(0, slices.IndexFunc(f.set.Tiles, func(mr int) bool { return mr <= m }))
}

func (f *floatOperator) Kernel(m int) string { return f.set.Name(f.bf16, f.set.Tiles[f.tile(m)]) }

func (f *floatOperator) Forward(w *Workspace, dst, x []float32, m int) error {
	return f.forward(w, dst, x, m, float32(math.Inf(-1)), float32(math.Inf(1)))
}

func (f *floatOperator) ForwardClamped(w *Workspace, dst, x []float32, m int, lo, hi float32) error {
	return f.forward(w, dst, x, m, lo, hi)
}

// floatPassBytes bounds the packed activations that a Workspace holds.
const floatPassBytes = 32 << 20

// floatPassRows is the number of rows of activations that are packed at a time: whole tiles.
func floatPassRows(set *floatmm.Set, cols int) int {
	tile := set.Tiles[0]
	return max(floatPassBytes/4/cols/tile*tile, tile)
}

func (f *floatOperator) forward(w *Workspace, dst, x []float32, m int, lo, hi float32) error {
	rows, cols := f.Rows(), f.Cols()
	if err := checkForward(rows, cols, dst, x, m, lo, hi); err != nil || m == 0 {
		return err
	}
	if tile := f.tile(m); f.log != nil && f.logged[tile].CompareAndSwap(false, true) {
		f.log(Choice{f.Kernel(m), f.header, m})
	}
	most := floatPassRows(f.set, cols)
	w.job.limit(lo, hi)
	for m > 0 {
		n := min(m, most)
		w.multiplyFloat(f, dst[:n*rows], x[:n*cols], n)
		dst, x, m = dst[n*rows:], x[n*cols:], m-n
	}
	w.job.f, w.job.dst, w.job.x = nil, nil, nil
	return nil
}

func (w *Workspace) multiplyFloat(f *floatOperator, dst, x []float32, m int) {
	j := &w.job
	j.f, j.dst, j.x, j.m = f, dst, x, m
	buffer.Grow(&w.floats, f.set.XLen(m, f.Cols()))
	// A part has whole tiles, and several rows if there are many columns to copy.
	j.batch = max(1, (1<<14)/f.Cols()/f.set.Tiles[0]) * f.set.Tiles[0]
	w.run((m+j.batch-1)/j.batch, stagePackFloat)
	j.batch = max(1, f.panels/(len(w.workers)*gemvParts)/f.set.Group) * f.set.Group
	w.run((f.panels+j.batch-1)/j.batch, stageFloat)
}

func (w *Workspace) packFloat(from, to int) {
	j := &w.job
	j.f.set.PackX(w.floats, j.x, j.m, j.f.Cols(), from, to)
}

func (w *Workspace) multiplyFloatPanels(own *worker, from, to int) {
	j := &w.job
	f, rows := j.f, j.f.Rows()
	f.mul(&own.float, j.dst, w.floats, j.m, from, to)
	if !j.clamped {
		return
	}
	for i := range j.m {
		clamp(j.dst[i*rows:][:rows][from*f.set.NR:min(to*f.set.NR, rows)], j.min, j.max)
	}
}
