package calib

import (
	"github.com/lowbit-go/gq/kernels"
)

// engine does the linear algebra: products by package kernels, whose bits depend neither on the CPU
// nor on the number of threads, and loops over rows that are divided among threads.
type engine struct {
	pool *kernels.Pool
	work *kernels.Workspace
}

func newEngine(threads int) *engine {
	p := kernels.NewPool(threads)
	return &engine{p, kernels.NewWorkspace(p)}
}

func (e *engine) close() { e.pool.Close() }

func quiet(kernels.Choice) {}

// product computes dst = x B^T. x is [m][cols], B is [rows][cols] and read row by row, dst is
// [m][rows]. Each sum is one chain of fused multiply-adds in float32, in order of columns.
func (e *engine) product(dst, x []float32, m, rows, cols int, read func(dst []float32, row int)) {
	if m == 0 || rows == 0 {
		return
	}
	op, err := kernels.NewRows(rows, cols, read, nil, kernels.Options{Log: quiet})
	if err == nil {
		err = op.Forward(e.work, dst[:m*rows], x[:m*cols], m)
	}
	if err != nil {
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

// transpose sets dst, [k][n], to the transpose of x, [n][k].
func (e *engine) transpose(dst, x []float32, n, k int) {
	const tile = 32
	e.rows(k, 4*tile, func(_, from, to int) {
		for j0 := from; j0 < to; j0 += tile {
			j1 := min(j0+tile, to)
			for i0 := 0; i0 < n; i0 += tile {
				i1 := min(i0+tile, n)
				for j := j0; j < j1; j++ {
					for i := i0; i < i1; i++ {
						dst[j*n+i] = x[i*k+j]
					}
				}
			}
		}
	})
}
