package fold

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/formats/safetensors"
)

type edits struct {
	matrices map[string]*edit        // by name: the matrices that change
	vectors  map[string][]vectorEdit // 1-D tensors and their changes, in order
	added    map[string]string       // new tensors and their sources, with entries in matrices
	untied   bool                    // config.json must say that lm_head is not tied to the embedding
}

func newEdits() *edits {
	return &edits{matrices: map[string]*edit{}, vectors: map[string][]vectorEdit{}, added: map[string]string{}}
}

// edit is the change of a tensor, seen as a matrix by its last dimension. In this order: columns
// are multiplied, rows are multiplied, rows are rotated, columns are rotated.
type edit struct {
	cols []colFactors
	rows []rowFactors
	in   *rotation // of each run of a row that has its size
	outs []turned  // runs of rows with rotated columns, ascending and disjoint
}

// vectorEdit changes some or all of the first size elements of a vector.
type vectorEdit struct {
	size int
	f    func(v []float64)
}

type colFactors struct {
	from, to int // rows
	f        []float64
}

type rowFactors struct {
	from int
	f    []float64
}

type turned struct {
	from int
	r    *rotation
}

func (e *edits) matrix(name string) *edit {
	if e.matrices[name] == nil {
		e.matrices[name] = &edit{}
	}
	return e.matrices[name]
}

func (e *edits) vector(name string, size int, f func(v []float64)) {
	e.vectors[name] = append(e.vectors[name], vectorEdit{size, f})
}

func turnVector(from, count int, r *rotation) func(v []float64) {
	return func(v []float64) {
		scratch := make([]float64, r.n)
		for at := from; at < from+count; at += r.n {
			r.turn(v[at:][:r.n], scratch)
		}
	}
}

// MismatchError says that a record was not made for a checkpoint.
type MismatchError struct{ Dir, Msg string }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s is not the checkpoint that was folded: %s", e.Dir, e.Msg)
}

// check checks the edits against the checkpoint's tensors: shapes must fit, and only floats change.
func (e *edits) check(ck *safetensors.Checkpoint) error {
	mismatch := func(name, format string, args ...any) error {
		return &MismatchError{ck.Dir(), fmt.Sprintf("tensor %q ", name) + fmt.Sprintf(format, args...)}
	}
	for name, ed := range e.matrices {
		if src := e.added[name]; src != "" {
			name = src
		}
		t, ok := ck.Lookup(name)
		if !ok {
			return mismatch(name, "is missing")
		}
		rows, cols := t.Matrix()
		if !t.Dtype.IsFloat() || len(t.Shape) < 2 {
			return mismatch(name, "has dtype %s and shape %v: it holds no weights of a linear", t.DtypeName, t.Shape)
		}
		for _, c := range ed.cols {
			if c.from < 0 || c.from > c.to || int64(c.to) > rows || int64(len(c.f)) != cols {
				return mismatch(name, "has shape %v, not rows %d to %d of %d columns", t.Shape, c.from, c.to, len(c.f))
			}
		}
		for _, r := range ed.rows {
			if r.from < 0 || int64(r.from)+int64(len(r.f)) > rows {
				return mismatch(name, "has shape %v, not rows %d to %d", t.Shape, r.from, r.from+len(r.f))
			}
		}
		if ed.in != nil && cols%int64(ed.in.n) != 0 {
			return mismatch(name, "has shape %v, whose rows are not of runs of %d", t.Shape, ed.in.n)
		}
		for _, o := range ed.outs {
			if int64(o.from+o.r.n) > rows {
				return mismatch(name, "has shape %v, not rows %d to %d", t.Shape, o.from, o.from+o.r.n)
			}
		}
	}
	for name, list := range e.vectors {
		t, ok := ck.Lookup(name)
		if !ok {
			return mismatch(name, "is missing")
		}
		if !t.Dtype.IsFloat() || len(t.Shape) != 1 {
			return mismatch(name, "has dtype %s and shape %v: it is no vector of weights", t.DtypeName, t.Shape)
		}
		for _, v := range list {
			if t.Numel() < int64(v.size) {
				return mismatch(name, "has shape %v, not %d elements", t.Shape, v.size)
			}
		}
	}
	return nil
}

func (ed *edit) row(x []float64, n int, scratch []float64) {
	for _, c := range ed.cols {
		if n >= c.from && n < c.to {
			for i, f := range c.f {
				x[i] = float64(x[i] * f)
			}
		}
	}
	for _, r := range ed.rows {
		if n >= r.from && n < r.from+len(r.f) {
			f := r.f[n-r.from]
			for i, v := range x {
				x[i] = float64(v * f)
			}
		}
	}
	if ed.in != nil {
		for at := 0; at < len(x); at += ed.in.n {
			ed.in.turn(x[at:][:ed.in.n], scratch[:ed.in.n])
		}
	}
}

type segment struct {
	from, to int
	out      *rotation // of their columns
}

// segmentWeights is about how many weights a segment has if columns are not rotated.
const segmentWeights = 4 << 20

func (ed *edit) segments(rows, cols int) (list []segment) {
	step := max(1, segmentWeights/max(cols, 1))
	plain := func(from, to int) {
		for ; from < to; from += step {
			list = append(list, segment{from, min(from+step, to), nil})
		}
	}
	at := 0
	for _, o := range ed.outs {
		plain(at, o.from)
		at = o.from + o.r.n
		list = append(list, segment{o.from, at, o.r})
	}
	plain(at, rows)
	return list
}

// narrow rounds to float32 and returns the index of the first number that is not finite, or -1.
func narrow(dst []byte, x []float64) (bad int) {
	bad = -1
	for i, v := range x {
		u := math.Float32bits(float32(v))
		if u&0x7f800000 == 0x7f800000 && bad < 0 {
			bad = i
		}
		dst[4*i], dst[4*i+1], dst[4*i+2], dst[4*i+3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
	}
	return bad
}
