package kernels

import (
	"fmt"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/kernels/floatmm"
)

// Operand is a row-major float32 matrix, or its transpose. Rows begin Stride values apart.
type Operand = floatmm.Operand

// Sizes of the blocks of Add. The packed rows of x, 2 MB, are read once for each panel of y.
const (
	addDepth = 512  // terms that are added to a sum at a time
	addRows  = 1024 // rows of x
	addChunk = 96   // rows that a thread packs at a time: whole tiles of every Set
)

// Add computes dst += x y. dst has m rows of n values, stride values apart; x is m x k, y is k x n.
// Each element is a chain of fused multiply-adds that begins at its value in dst, in order of k.
// NaN is written as 0x7fc00000.
func (t *Transposed) Add(w *Workspace, dst []float32, stride, m, n, k int, x, y Operand) error {
	if m < 1 || n < 1 || k < 1 {
		return nil
	}
	if !x.Holds(m, k) || !y.Holds(k, n) || !(Operand{Data: dst, Stride: stride}).Holds(m, n) {
		return fmt.Errorf("kernels: products of %d x %d and %d x %d values: one of the matrices is smaller", m, k, k, n)
	}
	for depth := 0; depth < k; depth += addDepth {
		terms := min(addDepth, k-depth)
		for row := 0; row < m; row += addRows {
			rows := min(addRows, m-row)
			t.add(w, dst[row*stride:], stride, rows, n, terms, x.Part(row, depth), y.Part(depth, 0), depth+terms == k, false)
		}
	}
	return nil
}

// GramBand is the number of elements of a row to the left of the diagonal that AddGram may change.
const GramBand = 128

// AddGram adds x^T x, for x of k rows and n columns, to the diagonal of dst and the elements above
// the diagonal, with the sums of Add. dst has n rows of n values, stride values apart.
func (t *Transposed) AddGram(w *Workspace, dst []float32, stride, n, k int, x Operand) error {
	if n < 1 || k < 1 {
		return nil
	}
	if !x.Holds(k, n) || !(Operand{Data: dst, Stride: stride}).Holds(n, n) {
		return fmt.Errorf("kernels: products of %d columns of %d values: one of the matrices is smaller", n, k)
	}
	turned := x
	turned.Transposed = !x.Transposed
	for depth := 0; depth < k; depth += addDepth {
		terms := min(addDepth, k-depth)
		for row := 0; row < n; row += addRows {
			rows := min(addRows, n-row)
			t.add(w, dst[row*stride+row:], stride, rows, n-row, terms, turned.Part(row, depth), x.Part(depth, row), depth+terms == k, true)
		}
	}
	return nil
}

// add is Add for a block. If upper is set, add leaves out chunks of rows below the diagonal.
func (t *Transposed) add(w *Workspace, dst []float32, stride, m, n, k int, x, y Operand, last, upper bool) {
	size := t.set.XLen(1, k)
	packed := buffer.Grow(&t.packed, m*size)
	chunks := (m + addChunk - 1) / addChunk
	w.each(chunks, 1<<15/(addChunk*k), func(_, a, b int) {
		for c := a; c < b; c++ {
			from := c * addChunk
			rows := min(addChunk, m-from)
			t.set.PackOperand(packed[from*size:][:rows*size], x.Part(from, 0), rows, k, 0, rows)
		}
	})
	// Few panels are divided by rows too.
	panels := t.panels(n)
	split := 1
	if most := len(w.workers) * gemmParts; panels < most {
		split = min(chunks, (most+panels-1)/panels)
	}
	w.each(panels*split, t.least(k*m), func(worker, a, b int) {
		for i := a; i < b; i++ {
			p, part := i/split, i%split
			from, end := part*chunks/split, (part+1)*chunks/split
			if upper {
				end = min(end, ((p+1)*t.set.NR+addChunk-1)/addChunk)
			}
			if from >= end {
				continue
			}
			from, to := from*addChunk, min(end*addChunk, m)
			t.set.AddPanel(&w.workers[worker].float, dst[from*stride:], stride, packed[from*size:to*size], to-from, addChunk, y, k, n, p, last)
		}
	})
}
