package calib

import "github.com/lowbit-go/gq/internal/buffer"

// hessianRows is how many rows of activations are multiplied at a time. Sums over that many rows
// are float32.
const hessianRows = 512

// hessianPanel is the number of columns of a product.
const hessianPanel = 256

// hessian collects the Hessian H = X^T X of linear layers that share their inputs X. For the target
// of gptq-ft it also collects products of X with the differences between the float model and the
// quantized model.
type hessian struct {
	e *engine
	k int
	n int // rows

	h     []float64 // upper triangle of X^T X, [k][k]
	cross []float32 // X^T D with D = X_float - X, [k][k]; nil if not wanted
	// residual is R^T X, where R are the float model's hidden states minus the quantized model's,
	// [width][k]; nil if not wanted.
	residual []float32
	width    int

	rows       int       // buffered
	x, d, r    []float32 // [rows][...]
	xt, dt, rt []float32
	out        []float32
}

func newHessian(e *engine, k int, cross bool, width int) *hessian {
	g := &hessian{e: e, k: k, h: make([]float64, k*k), width: width}
	if cross {
		g.cross = make([]float32, k*k)
	}
	if width > 0 {
		g.residual = make([]float32, width*k)
	}
	return g
}

// hessianBytes is the size of a hessian.
func hessianBytes(k int, cross bool, width int) int64 {
	n := int64(k) * int64(k) * 8
	if cross {
		n += int64(k) * int64(k) * 4
	}
	return n + int64(width)*int64(k)*4
}

// add adds a row: x is the input, d is the float model's input minus x, and r is the float model's
// hidden state minus the quantized model's. Nil stands for zeros in d and r.
func (g *hessian) add(x, d, r []float32) {
	if g.x == nil {
		g.x = make([]float32, hessianRows*g.k)
		if g.cross != nil {
			g.d = make([]float32, hessianRows*g.k)
		}
		if g.residual != nil {
			g.r = make([]float32, hessianRows*g.width)
		}
	}
	put := func(buffer, row []float32, k int) {
		if buffer == nil {
			return
		}
		if row == nil {
			clear(buffer[g.rows*k:][:k])
			return
		}
		copy(buffer[g.rows*k:][:k], row)
	}
	put(g.x, x, g.k)
	put(g.d, d, g.k)
	put(g.r, r, g.width)
	if g.rows++; g.rows == hessianRows {
		g.flush()
	}
}

// flush adds the buffered rows.
func (g *hessian) flush() {
	n, k, e := g.rows, g.k, g.e
	if n == 0 {
		return
	}
	g.n += n
	g.rows = 0
	xt := buffer.Grow(&g.xt, k*n)
	e.transpose(xt, g.x, n, k)
	for p := 0; p < k; p += hessianPanel {
		m, cols := min(hessianPanel, k-p), k-p
		out := buffer.Grow(&g.out, m*cols)
		e.product(out, xt[p*n:], m, cols, n, func(dst []float32, row int) { copy(dst, xt[(p+row)*n:][:n]) })
		e.rows(m, 16, func(_, from, to int) {
			for i := from; i < to; i++ {
				dst, src := g.h[(p+i)*k+p:][:cols], out[i*cols:][:cols]
				for j := i; j < cols; j++ {
					dst[j] += float64(src[j])
				}
			}
		})
	}
	if g.cross != nil {
		dt := buffer.Grow(&g.dt, k*n)
		e.transpose(dt, g.d, n, k)
		g.addProduct(g.cross, xt, dt, k, k, n)
	}
	if g.residual != nil {
		rt := buffer.Grow(&g.rt, g.width*n)
		e.transpose(rt, g.r, n, g.width)
		g.addProduct(g.residual, rt, xt, g.width, k, n)
	}
}

// addProduct computes dst += a b^T. a is [m][n], b is [k][n].
func (g *hessian) addProduct(dst, a, b []float32, m, k, n int) {
	for p := 0; p < m; p += hessianPanel {
		rows := min(hessianPanel, m-p)
		out := buffer.Grow(&g.out, rows*k)
		g.e.product(out, a[p*n:], rows, k, n, func(dst []float32, row int) { copy(dst, b[row*n:][:n]) })
		g.e.rows(rows, 16, func(_, from, to int) {
			for i := from * k; i < to*k; i++ {
				dst[p*k+i] += out[i]
			}
		})
	}
}

// done ends the collection and frees the buffers.
func (g *hessian) done() {
	g.flush()
	g.x, g.d, g.r, g.xt, g.dt, g.rt, g.out = nil, nil, nil, nil, nil, nil, nil
}

// zero reports whether all rows were zeros.
func (g *hessian) zero() bool {
	for j := range g.k {
		if g.h[j*g.k+j] != 0 {
			return false
		}
	}
	return true
}

// moment is the sum of x_i x_j.
func (g *hessian) moment(i, j int) float64 {
	if i > j {
		i, j = j, i
	}
	return g.h[i*g.k+j]
}
