package accuracy

import (
	"bytes"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// block holds a goroutine's buffers.
type block struct {
	x, y      []float32 // the checkpoint's weights, and the stored ones
	codes     []int8
	counts    octaves
	rows      *gqf.Rows
	out       [3][]float32
	workspace *kernels.Workspace
}

// compare compares block i of a quantized entry.
func (b *block) compare(e *entry, i int, o kernels.Options) (*part, error) {
	h := e.payload.Header
	first := int64(i) * e.step
	n, k := min(e.step, e.stats.Rows-first), e.stats.Cols
	x, y := buffer.Grow(&b.x, int(n*k)), buffer.Grow(&b.y, int(n*k))
	b.x, b.y, b.rows = x, y, e.rows
	at := int(int64(e.stats.Slice)*e.stats.Rows + first)
	e.source.weights.Widen(x, at, int(n))
	raw := e.source.weights.Bytes(at, int(n))
	p := &part{rows: n, count: n * k, bytes: int64(len(raw)), crc: crc32c.Checksum(raw), differ: -1}
	codes := buffer.Grow(&b.codes, int(k))
	group := int(k)
	if h.Group != 0 {
		group = int(min(h.Group, h.Cols))
	}
	for r := range n {
		xr, yr := x[r*k:][:k], y[r*k:][:k]
		e.rows.Dequantize(yr, int(first+r))
		e.rows.Codes(codes, nil, nil, int(first+r))
		p.sums.row(&b.counts, first+r, 0, xr, yr)
		p.sums.codes(codes, int(h.Bits))
		p.sums.groups(xr, yr, group)
	}
	p.sums.flush(&b.counts)
	if math.IsNaN(p.sums.noise) || math.IsInf(p.sums.noise, 0) {
		return nil, notFinite(x, y, first, k)
	}
	if e.sampled(i) {
		var err error
		if p.out, err = b.outputs(h, e.data, first, n, &e.inputs, o); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// sampled reports whether outputs of block i are computed: of all blocks, or of one in e.every.
func (e *entry) sampled(i int) bool {
	if e.every <= 1 {
		return e.every == 1
	}
	// Sample s is block s*every, rounded down. Rounding the quotients gives the same blocks on any
	// machine.
	s := math.Ceil(float64(i) / e.every)
	return int(float64(s*e.every)) == i
}

// notFinite names a weight that is NaN or infinite.
func notFinite(x, y []float32, first, cols int64) error {
	for i := range x {
		for _, v := range []struct {
			where string
			v     float32
		}{{"in the checkpoint", x[i]}, {"in the .gqf", y[i]}} {
			if f := float64(v.v); math.IsNaN(f) || math.IsInf(f, 0) {
				return fmt.Errorf("the weight in row %d, column %d is %v %s", first+int64(i)/cols, int64(i)%cols, f, v.where)
			}
		}
	}
	return fmt.Errorf("rows %d and following are not finite", first)
}

// unquantized compares block i of an unquantized entry: its bytes, and its numbers where the bytes differ
// or may differ.
func (b *block) unquantized(e *entry, i int) (*part, error) {
	h, src := e.payload.Header, &e.source.src
	view, err := e.source.ck.Bytes(*src)
	if err != nil {
		return nil, err
	}
	first := int64(i) * e.step
	n := min(e.step, e.stats.Rows*e.stats.Cols-first)
	have, want := elements(e.data, h.Dtype, first, n), elements(view, src.Dtype, first, n)
	p := &part{count: n, bytes: int64(len(want)), crc: crc32c.Checksum(want), differ: -1}
	same := h.Dtype == src.Dtype && bytes.Equal(have, want)
	if !same {
		p.differ = first
		for i := range have {
			if h.Dtype == src.Dtype && have[i] != want[i] {
				p.differ += int64(i) * 8 / int64(h.Dtype.Bits())
				break
			}
		}
	}
	if !h.Dtype.IsFloat() || !src.Dtype.IsFloat() {
		return p, nil
	}
	b.x, b.y = buffer.Grow(&b.x, int(n)), buffer.Grow(&b.y, int(n))
	safetensors.Widen(b.x, want, src.Dtype)
	safetensors.Widen(b.y, have, h.Dtype)
	for at := int64(0); at < n; {
		row, col := (first+at)/e.stats.Cols, (first+at)%e.stats.Cols
		end := min(n, at+e.stats.Cols-col)
		p.sums.row(&b.counts, row, col, b.x[at:end], b.y[at:end])
		at = end
	}
	p.sums.flush(&b.counts)
	if p.sums.noise-p.sums.noise != 0 {
		p.notFinite = notFiniteElement(b.x, b.y, first)
	}
	if same && p.sums.noise != 0 { // NaN or infinities that are equal in the checkpoint
		p.sums = errorSums{}
	}
	return p, nil
}

// notFiniteElement names the first element that is NaN or infinite; "" if none is. The elements x of the
// checkpoint and y of the file start with number first.
func notFiniteElement(x, y []float32, first int64) string {
	for i := range x {
		inCheckpoint, inFile := !floats.Finite(x[i]), !floats.Finite(y[i])
		element := first + int64(i)
		switch {
		case inCheckpoint && inFile:
			return fmt.Sprintf("element %d is %v in the checkpoint and %v in the file", element, x[i], y[i])
		case inCheckpoint:
			return fmt.Sprintf("element %d is %v in the checkpoint", element, x[i])
		case inFile:
			return fmt.Sprintf("element %d is %v in the file", element, y[i])
		}
	}
	return ""
}

// elements returns the bytes of n elements from first on. first is a multiple of 8, and so is n
// except at the end.
func elements(data []byte, d packing.Dtype, first, n int64) []byte {
	bits := int64(d.Bits())
	return data[first*bits/8:][:(n*bits+7)/8]
}
