package calib

import (
	"github.com/lowbit-go/gq/kernels"
)

// engine is what linear algebra runs on: the products of package kernels, whose bits depend neither on the CPU nor on how
// many threads there are, and loops over rows that are divided among threads.
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

// product computes dst = x B^T for m rows of x, [m][cols], and the rows x cols matrix B that read gives a row at a time:
// dst is [m][rows]. Each sum is one chain of fused multiply-adds in float32, in order of column.
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

// rows calls f for pieces of 0 .. n-1, from several goroutines. worker tells these apart.
func (e *engine) rows(n, piece int, f func(worker, from, to int)) {
	parts := (n + piece - 1) / piece
	if parts <= 1 || e.pool.Threads() == 1 {
		f(0, 0, n)
		return
	}
	e.pool.Run(parts, func(worker, part int) { f(worker, part*piece, min(n, (part+1)*piece)) })
}

// transpose gives x, [n][k], as [k][n].
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
