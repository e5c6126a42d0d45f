package calib

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels"
)

// engine does the linear algebra: products by package kernels, with the same bits for any CPU and
// number of threads, and loops over rows that are divided among threads.
type engine struct {
	pool *kernels.Pool
	work *kernels.Workspace
	sums *kernels.Transposed

	floats buffer.Pool[float32] // large slices between their uses
	codes  buffer.Pool[int8]
	solver solverBuffers // of all matrices, in turn
}

type operand = kernels.Operand

func newEngine(threads int) *engine {
	sums, err := kernels.NewTransposed(kernels.Options{})
	if err != nil {
		panic(err) // only for a CPU that was asked for
	}
	p := kernels.NewPool(threads)
	return &engine{pool: p, work: kernels.NewWorkspace(p), sums: sums}
}

func (e *engine) close() { e.pool.Close() }

func quiet(kernels.Choice) {}

// add computes dst += x y, where dst is m x n with rows stride values apart, x is m x k and y is k
// x n. Each sum is a single chain of fused multiply-adds in float32, in order of k.
func (e *engine) add(dst []float32, stride, m, n, k int, x, y operand) {
	if err := e.sums.Add(e.work, dst, stride, m, n, k, x, y); err != nil {
		panic(err) // the lengths are wrong
	}
}

// product computes dst = x y, all packed: dst is [m][n].
func (e *engine) product(dst []float32, m, n, k int, x, y operand) {
	clear(dst[:m*n])
	e.add(dst, n, m, n, k, x, y)
}

// addGram adds x^T x, for x of n rows and k columns, to the upper triangle of dst, with rows stride
// values apart. Some elements below the diagonal change too, see kernels.GramBand.
func (e *engine) addGram(dst []float32, stride, k, n int, x operand) {
	if err := e.sums.AddGram(e.work, dst, stride, k, n, x); err != nil {
		panic(err) // the lengths are wrong
	}
}

// rows calls f for pieces of [0, n), in several goroutines. worker is the number of the goroutine.
func (e *engine) rows(n, piece int, f func(worker, from, to int)) {
	parts := (n + piece - 1) / piece
	if parts <= 1 || e.pool.Threads() == 1 {
		f(0, 0, n)
		return
	}
	e.pool.Run(parts, func(worker, part int) { f(worker, part*piece, min(n, (part+1)*piece)) })
}
