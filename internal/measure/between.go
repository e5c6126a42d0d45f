package measure

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

// Pair holds the indices of a tensor in a .gqf file and of its counterpart in another file.
type Pair struct{ A, B int }

// Distance says how far apart the two tensors of a Pair are.
type Distance struct {
	// Equal reports whether all payloads have the same headers and bytes.
	Equal bool
	// Incomparable says why there is no SQNR: different shapes, or elements that are not weights.
	Incomparable string
	// SQNR compares B's weights with A's. Equal weights give +Inf, even if their bytes differ.
	SQNR accuracy.Decibels
}

// BetweenOptions are the options of Between. The zero value is ready to use.
type BetweenOptions struct {
	// Threads is the number of goroutines; results are the same for any. Default (0): GOMAXPROCS.
	Threads int
	// Progress is called by several goroutines with numbers of A's weights done. Default: none.
	Progress func(n int64)
}

// Between compares tensors of two .gqf files, in a single pass over the data if the bytes are
// equal, else in two. Of the weights, only the first variants are compared.
func Between(ctx context.Context, a, b *gqf.File, pairs []Pair, o BetweenOptions) ([]Distance, error) {
	a.CheckSums()
	b.CheckSums()
	j := &betweenJob{a: a, b: b, pairs: pairs, progress: o.Progress, result: make([]Distance, len(pairs)), parts: make([][]signalSums, len(pairs))}
	if j.progress == nil {
		j.progress = func(int64) {}
	}
	if err := cpu.Parallel(ctx, cpu.Threads(o.Threads), len(pairs), func() func(int) error { return j.bytes }); err != nil {
		return nil, err
	}
	if err := cpu.Parallel(ctx, cpu.Threads(o.Threads), len(j.units), func() func(int) error { return j.weights }); err != nil {
		return nil, err
	}
	for i := range j.result {
		var sums signalSums
		for _, p := range j.parts[i] { // in order: the sum does not depend on threads
			sums.merge(&p)
		}
		switch d := &j.result[i]; {
		case d.Equal:
			d.SQNR = accuracy.Ratio(1, 0)
		case d.Incomparable != "":
		case math.IsNaN(sums.noise) || math.IsInf(sums.noise, 0):
			d.Incomparable = "holds weights that are not finite"
		default:
			d.SQNR = sums.ratio()
		}
	}
	return j.result, nil
}

type betweenJob struct {
	a, b     *gqf.File
	pairs    []Pair
	progress func(int64)
	result   []Distance

	mu    sync.Mutex
	units []betweenUnit  // rows with weights to compare
	parts [][]signalSums // by pair and unit
}

// betweenUnit is a run of rows of a pair, counted over all slices.
type betweenUnit struct {
	pair, part  int
	first, rows int
}

type tensorPair struct{ a, b gqf.Tensor }

func (j *betweenJob) tensors(i int) *tensorPair {
	return &tensorPair{j.a.Tensor(j.pairs[i].A), j.b.Tensor(j.pairs[i].B)}
}

// bytes compares the payloads of pair i, and lists the rows of unequal payloads as units.
func (j *betweenJob) bytes(i int) error {
	p, d := j.tensors(i), &j.result[i]
	for _, t := range []gqf.Tensor{p.a, p.b} {
		if err := t.Usable(); err != nil {
			return err
		}
	}
	err := j.guard(func() (err error) {
		d.Equal, err = j.samePayloads(p)
		return err
	})
	if err != nil {
		return fmt.Errorf("tensor %q: %w", p.a.Name, err)
	}
	x, y := p.rows()
	switch {
	case d.Equal:
		j.progress(p.a.Elements())
		return nil
	case x.rows != y.rows || x.cols != y.cols:
		d.Incomparable = "has another shape"
	case !x.weights() || !y.weights():
		d.Incomparable = "does not hold floating-point weights, or their block scales are apart"
	}
	if d.Incomparable != "" || x.rows == 0 || x.cols == 0 {
		j.progress(p.a.Elements())
		return nil
	}
	step := max(blockWeights/x.cols, 1)
	j.mu.Lock()
	defer j.mu.Unlock()
	for first := 0; first < x.rows; first += step {
		j.units = append(j.units, betweenUnit{i, len(j.parts[i]), first, min(step, x.rows-first)})
		j.parts[i] = append(j.parts[i], signalSums{})
	}
	return nil
}

func (j *betweenJob) guard(fn func() error) error {
	return j.a.Guard(func() error { return j.b.Guard(fn) })
}

func (j *betweenJob) samePayloads(p *tensorPair) (bool, error) {
	a, b := p.a.Payloads(), p.b.Payloads()
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if a[i].Header != b[i].Header || a[i].Kind != b[i].Kind || a[i].Slice != b[i].Slice || a[i].Length != b[i].Length || a[i].CPU != b[i].CPU {
			return false, nil
		}
		x, err := j.a.Data(a[i])
		if err != nil {
			return false, err
		}
		y, err := j.b.Data(b[i])
		if err != nil {
			return false, err
		}
		if !bytes.Equal(x, y) {
			return false, nil
		}
	}
	return true, nil
}

func (j *betweenJob) weights(i int) error {
	u := j.units[i]
	p := j.tensors(u.pair)
	x, y := p.rows()
	var va, vb []float32
	err := j.guard(func() error {
		for r := u.first; r < u.first+u.rows; r++ {
			if err := x.read(buffer.Grow(&va, x.cols), j.a, r); err != nil {
				return err
			}
			if err := y.read(buffer.Grow(&vb, y.cols), j.b, r); err != nil {
				return err
			}
			j.parts[u.pair][u.part].add(va, vb)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tensor %q: %w", p.a.Name, err)
	}
	j.progress(int64(u.rows) * int64(x.cols))
	return nil
}

// tensorRows reads a tensor's weights, a row per output. Rows are counted over all slices.
type tensorRows struct {
	t                 gqf.Tensor
	rows, cols, slice int  // rows in all, columns, rows of a slice
	plain, transposed bool // transposed: a plain payload is inputs x outputs

	open   int // the slice that is open, -1 for none
	coded  *gqf.Rows
	data   []byte // of a plain payload
	single [1]float32
}

// rows gives the readers of both tensors.
func (p *tensorPair) rows() (a, b *tensorRows) {
	// Only quantized tensors are stored transposed. A plain payload of such a tensor is in the
	// checkpoint's order.
	transposed := p.a.Transposed || p.b.Transposed
	return newTensorRows(p.a, transposed), newTensorRows(p.b, transposed)
}

func newTensorRows(t gqf.Tensor, transposed bool) *tensorRows {
	p, _ := t.Payload(0, 0, gqf.KindWeights)
	h := p.Header
	r := &tensorRows{t: t, plain: h.Layout == packing.LayoutPlain, open: -1, cols: int(h.Cols), slice: int(h.Rows), rows: int(h.Rows) * t.Experts}
	if n := len(t.Shape); r.plain && n >= 2 {
		r.cols, r.slice = int(t.Shape[n-1]), int(t.Shape[n-2])
		r.rows = int(t.Elements() / int64(max(r.cols, 1)))
		if r.transposed = transposed; transposed {
			r.rows = r.rows / max(r.slice, 1) * r.cols
			r.cols, r.slice = r.slice, r.cols
		}
	}
	return r
}

// weights reports whether read returns the weights. FP8 weights also need another tensor's scales.
func (r *tensorRows) weights() bool {
	p, _ := r.t.Payload(0, 0, gqf.KindWeights)
	d := p.Header.Dtype
	return !r.plain || d.IsFloat() && d != packing.F8E4M3 && d != packing.F8E5M2
}

// read reads a row, inside Guard.
func (r *tensorRows) read(dst []float32, f *gqf.File, row int) (err error) {
	p, _ := r.t.Payload(0, 0, gqf.KindWeights)
	if r.plain {
		if r.open < 0 {
			if r.data, err = f.Data(p); err != nil {
				return err
			}
			r.open = 0
		}
		width := p.Header.Dtype.Bits() / 8
		if !r.transposed {
			safetensors.Widen(dst, r.data[row*r.cols*width:][:r.cols*width], p.Header.Dtype)
			return nil
		}
		slice, out := row/r.slice, row%r.slice
		for k := range dst {
			at := ((slice*r.cols+k)*r.slice + out) * width
			safetensors.Widen(r.single[:], r.data[at:][:width], p.Header.Dtype)
			dst[k] = r.single[0]
		}
		return nil
	}
	if slice := row / r.slice; slice != r.open {
		if r.coded, err = r.t.Rows(0, slice); err != nil {
			return err
		}
		r.open = slice
	}
	r.coded.Dequantize(dst, row%r.slice)
	return nil
}
