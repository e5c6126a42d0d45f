package calib

import "github.com/lowbit-go/gq/internal/buffer"

// gramRows is how many rows of activations are multiplied at a time: a sum of so many products is made in float32.
const gramRows = 512

// gramPanel is how many columns' products are made at a time.
const gramPanel = 256

// gram collects the second moments of the inputs of linears that share them: H = X^T X, and for the float-path target how
// they go together with what the float model has in their place.
type gram struct {
	e *engine
	k int
	n int // rows

	h     []float64 // upper triangle of X^T X, [k][k]
	cross []float32 // X^T D, D what the float model's inputs have more, [k][k]; nil: not wanted
	// residual is R^T X, R what the float model's hidden states have more, [width][k]; nil: not wanted
	residual []float32
	width    int

	rows       int       // buffered
	x, d, r    []float32 // [rows][...]
	xt, dt, rt []float32
	out        []float32
}

func newGram(e *engine, k int, cross bool, width int) *gram {
	g := &gram{e: e, k: k, h: make([]float64, k*k), width: width}
	if cross {
		g.cross = make([]float32, k*k)
	}
	if width > 0 {
		g.residual = make([]float32, width*k)
	}
	return g
}

// gramBytes is what a gram takes.
func gramBytes(k int, cross bool, width int) int64 {
	n := int64(k) * int64(k) * 8
	if cross {
		n += int64(k) * int64(k) * 4
	}
	return n + int64(width)*int64(k)*4
}

// add takes a row: the input x, what the float model's has more, and what its hidden state has more. The latter two may
// be nil for zeros.
func (g *gram) add(x, d, r []float32) {
	if g.x == nil {
		g.x = make([]float32, gramRows*g.k)
		if g.cross != nil {
			g.d = make([]float32, gramRows*g.k)
		}
		if g.residual != nil {
			g.r = make([]float32, gramRows*g.width)
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
	if g.rows++; g.rows == gramRows {
		g.flush()
	}
}

// flush adds what is buffered.
func (g *gram) flush() {
	n, k, e := g.rows, g.k, g.e
	if n == 0 {
		return
	}
	g.n += n
	g.rows = 0
	xt := buffer.Grow(&g.xt, k*n)
	e.transpose(xt, g.x, n, k)
	for p := 0; p < k; p += gramPanel {
		m, cols := min(gramPanel, k-p), k-p
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

// addProduct adds a b^T to dst; a is [m][n], b [k][n].
func (g *gram) addProduct(dst, a, b []float32, m, k, n int) {
	for p := 0; p < m; p += gramPanel {
		rows := min(gramPanel, m-p)
		out := buffer.Grow(&g.out, rows*k)
		g.e.product(out, a[p*n:], rows, k, n, func(dst []float32, row int) { copy(dst, b[row*n:][:n]) })
		g.e.rows(rows, 16, func(_, from, to int) {
			for i := from * k; i < to*k; i++ {
				dst[p*k+i] += out[i]
			}
		})
	}
}

// done ends the collecting and gives the buffers up.
func (g *gram) done() {
	g.flush()
	g.x, g.d, g.r, g.xt, g.dt, g.rt, g.out = nil, nil, nil, nil, nil, nil, nil
}

// zero tells that all rows were zeros.
func (g *gram) zero() bool {
	for j := range g.k {
		if g.h[j*g.k+j] != 0 {
			return false
		}
	}
	return true
}

// moment is the sum of x_i x_j.
func (g *gram) moment(i, j int) float64 {
	if i > j {
		i, j = j, i
	}
	return g.h[i*g.k+j]
}
