package kernels

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/kernels/floatmm"
)

// RowReader reads the rows of a matrix of weights as float32. All operators here are RowReaders.
type RowReader interface {
	// Rows is the number of outputs, Cols the number of inputs.
	Rows() int
	Cols() int
	// ReadRow writes a row's weights to dst, Cols() long. Many goroutines may call ReadRow at once.
	ReadRow(dst []float32, row int)
}

// Transposed computes the two products that a linear layer y = x W^T needs in a backward pass: x W
// for the gradient of its input, and Y^T X for the gradient of its weights. Sums are single chains
// of fused multiply-adds, as in NewFloat, so the bits depend neither on the CPU nor on threads.
//
// A Transposed holds parts of matrices, see [Transposed.Bytes], and serves one product at a time.
// Products run on the pool of the Workspace.
type Transposed struct {
	set     *floatmm.Set
	weights []float32 // some rows of the weights
	packed  []float32 // rows of the other matrix
}

// NewTransposed chooses the kernels. Only o.CPU is used.
func NewTransposed(o Options) (*Transposed, error) {
	features, err := o.features()
	if err != nil {
		return nil, err
	}
	return &Transposed{set: floatmm.Sets.For(features).Code}, nil
}

// transposedBytes bounds the rows of weights that a product holds, unless 64 rows are larger.
const transposedBytes = 4 << 20

// blockOf returns the number of rows of cols values that are held at a time: a multiple of 4.
func blockOf(rows, cols int) int {
	return min(rows, max(transposedBytes/4/cols&^3, 64))
}

// A Shape is the size of a product: M rows with a matrix of Rows x Cols weights.
type Shape struct{ M, Rows, Cols int }

// Bytes is the memory that both products of these shapes take, and Forward of operators with
// float32 activations, in a Workspace of this many threads.
func (t *Transposed) Bytes(threads int, shapes []Shape) int64 {
	pad := func(n int) int { return t.set.XLen(1, n) }
	var weights, packed, input, panel, rows int
	for _, s := range shapes {
		depth, terms := pad(min(s.Rows, addDepth)), pad(min(s.M, addDepth))
		weights = max(weights, blockOf(s.Rows, s.Cols)*s.Cols)
		packed = max(packed, min(s.M, addRows)*depth, min(s.Rows, addRows)*terms)
		input = max(input, min(s.M, floatPassRows(t.set, s.Cols))*pad(s.Cols))
		panel, rows = max(panel, depth, terms, pad(s.Cols)), max(rows, readRows*s.Cols)
	}
	return 4 * (int64(weights) + int64(packed) + int64(input) + int64(threads)*int64((panel+t.set.Tiles[0]+1)*t.set.NR+rows))
}

// Multiply computes dst = x W for m rows: dst is [m][Cols()], x is [m][Rows()]. Each element is a
// chain of fused multiply-adds in order of the rows of W. If add is set, the chains begin at the
// values in dst, else at 0. Multiply reads each row of W once.
func (t *Transposed) Multiply(w *Workspace, dst, x []float32, m int, weights RowReader, add bool) error {
	rows, cols := weights.Rows(), weights.Cols()
	if m < 0 || m > math.MaxInt/max(rows, cols) || len(dst) != m*cols || len(x) != m*rows {
		return fmt.Errorf("kernels: %d values to %d, want %d rows of %d and %d", len(x), len(dst), m, rows, cols)
	}
	if !add {
		clear(dst)
	}
	for from := 0; from < rows && m > 0; {
		n := blockOf(rows-from, cols)
		block := buffer.Grow(&t.weights, n*cols)
		w.each(n, 1<<14/cols, func(_, a, b int) {
			for r := a; r < b; r++ {
				weights.ReadRow(block[r*cols:(r+1)*cols:(r+1)*cols], from+r)
			}
		})
		if err := t.Add(w, dst, cols, m, cols, n, Operand{Data: x[from:], Stride: rows}, Operand{Data: block, Stride: cols}); err != nil {
			return err
		}
		from += n
	}
	return nil
}

func (t *Transposed) panels(n int) int { return (n + t.set.NR - 1) / t.set.NR }

// least is the number of panels of k rows that are worth waking a thread.
func (t *Transposed) least(k int) int { return 1 << 14 / (t.set.NR * k) }

// Outer computes rows from to from+n-1 of dst = Y^T X, for y of m rows of rows values and x of m
// rows of cols values: the gradient of a linear layer's weights, from the gradients of its outputs
// and its inputs. dst is [n][cols]. Each element is a chain of fused multiply-adds in order of the
// m rows. Outer is efficient for n >= 64.
func (t *Transposed) Outer(w *Workspace, dst, y, x []float32, m, rows, cols, from, n int) error {
	switch {
	case m < 0 || rows < 1 || cols < 1 || m > math.MaxInt/max(rows, cols) || len(y) != m*rows || len(x) != m*cols:
		return fmt.Errorf("kernels: %d and %d values, want %d rows of %d and %d", len(y), len(x), m, rows, cols)
	case from < 0 || n < 0 || from > rows-n || len(dst) != n*cols:
		return fmt.Errorf("kernels: rows %d to %d of %d x %d products to %d values", from, from+n, rows, cols, len(dst))
	}
	if clear(dst); m == 0 {
		return nil
	}
	return t.Add(w, dst, cols, n, cols, m, Operand{Data: y[from:], Stride: rows, Transposed: true}, Operand{Data: x, Stride: cols})
}

// each divides n items among the goroutines; a part has least items or more.
func (w *Workspace) each(n, least int, f func(worker, from, to int)) {
	parts := min(len(w.workers)*gemmParts, n/max(least, 1))
	if w.pool == nil || parts <= 1 {
		f(0, 0, n)
		return
	}
	w.pool.Run(parts, func(worker, part int) { f(worker, part*n/parts, (part+1)*n/parts) })
}

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
	t.addBlocks(w, dst, stride, m, n, k, x, y, false)
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
	t.addBlocks(w, dst, stride, n, n, k, turned, x, true)
	return nil
}

// addBlocks is Add, or AddGram if upper is set, block by block.
func (t *Transposed) addBlocks(w *Workspace, dst []float32, stride, m, n, k int, x, y Operand, upper bool) {
	for depth := 0; depth < k; depth += addDepth {
		terms := min(addDepth, k-depth)
		for row := 0; row < m; row += addRows {
			rows, col := min(addRows, m-row), 0
			if upper {
				col = row
			}
			t.add(w, dst[row*stride+col:], stride, rows, n-col, terms, x.Part(row, depth), y.Part(depth, col), depth+terms == k, upper)
		}
	}
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
