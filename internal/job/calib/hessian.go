package calib

// hessianRows is how many rows of activations are multiplied at a time.
const hessianRows = 512

// hessian collects the Hessian H = X^T X of linear layers with the shared inputs X, and for gptq-ft
// S = A^T X, the source of the shift of the layers' targets. Sums are chains of fused multiply-adds
// in float32, in order of rows.
//
// With D = X_float - X, R the float model's hidden states minus the quantized model's, and W the
// weights, A is one of
//
//	D                     S has k rows, and W S takes n k^2 operations: for many weights
//	D W^T                 S has n rows: for few weights
//	factor (D W^T + R)    the same, for all that output residuals
type hessian struct {
	e *engine
	k int
	n int // rows

	h     []float32 // upper triangle of X^T X, [k][k]
	shift []float32 // S, [width][k]; nil if not wanted
	width int

	weights   []float32 // W, [width][k], until done; nil if A is D
	ofWeights bool      // A is not D
	factor    float32   // 0: A is without R

	rows int       // buffered
	x, d []float32 // [rows][k]
	a    []float32 // [rows][width]; holds R before A; nil if A is D
}

// newHessian makes a hessian. shift says whether S is wanted.
func newHessian(e *engine, k int, shift bool) *hessian {
	g := &hessian{e: e, k: k, h: e.floats.Zeros(k * k)}
	if shift {
		g.width = k
		g.shift = e.floats.Zeros(k * k)
	}
	return g
}

func newHessianOf(e *engine, k int, weights []float32, factor float32) *hessian {
	g := newHessian(e, k, false)
	g.ofWeights, g.width, g.weights, g.factor = true, len(weights)/k, weights, factor
	g.shift = e.floats.Zeros(g.width * k)
	return g
}

// hessianBytes is the size of a hessian with width rows of S; of says whether weights are included.
func hessianBytes(k, width int, of bool) int64 {
	n := int64(k) + int64(width)
	if of {
		n += int64(width)
	}
	return 4 * n * int64(k)
}

// add adds n rows. fill writes row i: x is the input, d is the float model's input minus x, and r
// is the float model's hidden state minus the quantized model's. Unwanted d and r are nil.
func (g *hessian) add(n int, fill func(i int, x, d, r []float32)) {
	if g.x == nil {
		g.x = g.e.floats.Take(hessianRows * g.k)
		if g.shift != nil {
			g.d = g.e.floats.Take(hessianRows * g.k)
		}
		if g.ofWeights {
			g.a = g.e.floats.Take(hessianRows * g.width)
		}
	}
	for done := 0; done < n; {
		some := min(hessianRows-g.rows, n-done)
		g.e.rows(some, 16, func(_, from, to int) {
			for i := from; i < to; i++ {
				at := g.rows + i
				var d, r []float32
				if g.d != nil {
					d = g.d[at*g.k:][:g.k]
				}
				if g.factor != 0 {
					r = g.a[at*g.width:][:g.width]
				}
				fill(done+i, g.x[at*g.k:][:g.k], d, r)
			}
		})
		done += some
		if g.rows += some; g.rows == hessianRows {
			g.flush()
		}
	}
}

func (g *hessian) flush() {
	n, k, e := g.rows, g.k, g.e
	if n == 0 {
		return
	}
	g.n += n
	g.rows = 0
	x := operand{Data: g.x, Stride: k}
	e.addGram(g.h, k, k, n, x)
	if g.shift == nil {
		return
	}
	a := operand{Data: g.d, Stride: k}
	if g.ofWeights {
		g.outputs(n)
		a = operand{Data: g.a, Stride: g.width}
	}
	a.Transposed = true
	e.add(g.shift, k, g.width, k, n, a, x)
}

// outputs sets A of n rows, see hessian.
func (g *hessian) outputs(n int) {
	a := g.a[:n*g.width]
	if g.factor == 0 {
		clear(a)
	} else {
		for _, x := range [][]float32{a, g.d[:n*g.k]} {
			g.e.rows(n, 16, func(_, from, to int) {
				part := x[from*len(x)/n : to*len(x)/n]
				for i := range part {
					part[i] = float32(part[i] * g.factor)
				}
			})
		}
	}
	g.e.add(a, g.width, n, g.width, g.k, operand{Data: g.d, Stride: g.k}, operand{Data: g.weights, Stride: g.k, Transposed: true})
}

// done ends the collection and frees the buffers.
func (g *hessian) done() {
	g.flush()
	g.e.floats.Put(g.x, g.d, g.a, g.weights)
	g.x, g.d, g.a, g.weights = nil, nil, nil, nil
}

func (g *hessian) zero() bool {
	for j := range g.k {
		if g.h[j*g.k+j] != 0 {
			return false
		}
	}
	return true
}
