package calib

import (
	"errors"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
)

// block is the number of columns that are eliminated, or quantized, before the others are updated.
const block = 128

// factor is the Cholesky factor of a damped Hessian, with the columns in ascending activation
// order: columns are quantized from the last to the first, so the column with the largest diagonal
// comes last.
type factor struct {
	e      *engine
	k      int
	n      int   // rows of activations
	order  []int // the column at each place
	dead   int   // columns that were always zero
	lambda float64
	u      []float64 // U^T U = H + lambda, upper, [k][k] in the order's places
	h      []float32 // H + lambda, in the order's places
	diag   []float64 // of H, by column
}

var errNotPositive = errors.New("calib: the Hessian is not positive definite, even with strong damping: are the activations finite?")

// factorize damps the Hessian with lambda = max(.01, damping * k/n) times its mean diagonal and
// factorizes it.
func factorize(e *engine, g *hessian) (*factor, error) {
	k := g.k
	f := &factor{e: e, k: k, n: g.n, order: make([]int, k), diag: make([]float64, k), u: make([]float64, k*k), h: make([]float32, k*k)}
	mean := 0.0
	for j := range k {
		f.order[j] = j
		f.diag[j] = g.moment(j, j)
		mean += f.diag[j]
		if f.diag[j] == 0 {
			f.dead++
		}
	}
	mean /= float64(max(1, k-f.dead))
	slices.SortStableFunc(f.order, func(a, b int) int {
		switch {
		case f.diag[a] < f.diag[b]:
			return -1
		case f.diag[a] > f.diag[b]:
			return 1
		}
		return b - a
	})
	f.lambda = float64(max(.01, .2*float64(k)/float64(g.n)) * mean)
	for range 6 {
		f.fill(g)
		if f.cholesky() {
			return f, nil
		}
		f.lambda *= 10
	}
	return nil, errNotPositive
}

// fill sets u and h to the damped Hessian.
func (f *factor) fill(g *hessian) {
	k := f.k
	f.e.rows(k, 16, func(_, from, to int) {
		for a := from; a < to; a++ {
			i := f.order[a]
			for b := range k {
				v := g.moment(i, f.order[b])
				if a == b {
					v += f.lambda
				}
				f.h[a*k+b] = float32(v)
				if b >= a {
					f.u[a*k+b] = v
				}
			}
		}
	})
}

// cholesky factorizes u in place. Each element is computed by the same operations in the same order
// for any number of threads.
func (f *factor) cholesky() bool {
	const nb = 64
	k, u := f.k, f.u
	for k0 := 0; k0 < k; k0 += nb {
		k1 := min(k0+nb, k)
		for i := k0; i < k1; i++ {
			d := u[i*k+i]
			if !(d > 0) || math.IsInf(d, 0) {
				return false
			}
			d = math.Sqrt(d)
			u[i*k+i] = d
			for j := i + 1; j < k1; j++ {
				u[i*k+j] /= d
			}
			for p := i + 1; p < k1; p++ {
				c := u[i*k+p]
				for j := p; j < k1; j++ {
					u[p*k+j] -= float64(c * u[i*k+j])
				}
			}
		}
		// The rest of the block's rows, by columns.
		f.e.rows(k-k1, 64, func(_, from, to int) {
			for i := k0; i < k1; i++ {
				row := u[i*k+k1+from : i*k+k1+to]
				for p := k0; p < i; p++ {
					subtract(row, u[p*k+k1+from:][:len(row)], u[p*k+i])
				}
				d := u[i*k+i]
				for j := range row {
					row[j] /= d
				}
			}
		})
		// The rows below the block.
		f.e.rows(k-k1, 8, func(_, from, to int) {
			for i := k1 + from; i < k1+to; i++ {
				row := u[i*k+i : (i+1)*k]
				p := k0
				for ; p+4 <= k1; p += 4 {
					subtract4(row, u[p*k+i:][:len(row)], u[(p+1)*k+i:][:len(row)], u[(p+2)*k+i:][:len(row)], u[(p+3)*k+i:][:len(row)])
				}
				for ; p < k1; p++ {
					subtract(row, u[p*k+i:][:len(row)], u[p*k+i])
				}
			}
		})
	}
	return true
}

// subtract computes a -= c*b.
func subtract(a, b []float64, c float64) {
	for j, v := range b {
		a[j] -= float64(c * v)
	}
}

// subtract4 subtracts four rows from a, each times its first element.
func subtract4(a, r0, r1, r2, r3 []float64) {
	if len(a) == 0 {
		return
	}
	c0, c1, c2, c3 := r0[0], r1[0], r2[0], r3[0]
	r0, r1, r2, r3 = r0[:len(a)], r1[:len(a)], r2[:len(a)], r3[:len(a)]
	for j, v := range a {
		a[j] = v - ((float64(c0*r0[j]) + float64(c1*r1[j])) + (float64(c2*r2[j]) + float64(c3*r3[j])))
	}
}

// solve replaces the n rows of b, [n][k] in the order's places, by the rows of B (H + lambda)^-1.
func (f *factor) solve(b []float32, n int) {
	k, u := f.k, f.u
	var part, out []float32
	// Y U = B, block by block from the first.
	for j0 := 0; j0 < k; j0 += block {
		j1 := min(j0+block, k)
		w := j1 - j0
		part := buffer.Grow(&part, n*w)
		f.e.rows(n, 16, func(_, from, to int) {
			var y [block]float64
			for r := from; r < to; r++ {
				row := b[r*k+j0 : r*k+j1]
				for j := range row {
					y[j] = float64(row[j])
				}
				for j := range row {
					y[j] /= u[(j0+j)*k+j0+j]
					subtract(y[j+1:w], u[(j0+j)*k+j0+j+1:][:w-j-1], y[j])
					row[j] = float32(y[j])
				}
				copy(part[r*w:], row)
			}
		})
		rest := k - j1
		o := buffer.Grow(&out, n*rest)
		f.e.product(o, part, n, rest, w, func(dst []float32, row int) {
			for p := range dst {
				dst[p] = float32(u[(j0+p)*k+j1+row])
			}
		})
		f.e.rows(n, 16, func(_, from, to int) {
			for r := from; r < to; r++ {
				dst, src := b[r*k+j1:][:rest], o[r*rest:][:rest]
				for j, v := range src {
					dst[j] -= v
				}
			}
		})
	}
	// Z U^T = Y, from the last.
	for j1 := k; j1 > 0; {
		j0 := (j1 - 1) / block * block
		w := j1 - j0
		part := buffer.Grow(&part, n*w)
		f.e.rows(n, 16, func(_, from, to int) {
			var z [block]float64
			for r := from; r < to; r++ {
				row := b[r*k+j0 : r*k+j1]
				for j := w - 1; j >= 0; j-- {
					s := float64(row[j])
					for i := j + 1; i < w; i++ {
						s -= float64(z[i] * u[(j0+j)*k+j0+i])
					}
					z[j] = s / u[(j0+j)*k+j0+j]
				}
				for j := range row {
					row[j] = float32(z[j])
				}
				copy(part[r*w:], row)
			}
		})
		o := buffer.Grow(&out, n*j0)
		f.e.product(o, part, n, j0, w, func(dst []float32, row int) {
			for p := range dst {
				dst[p] = float32(u[row*k+j0+p])
			}
		})
		f.e.rows(n, 16, func(_, from, to int) {
			for r := from; r < to; r++ {
				dst, src := b[r*k:][:j0], o[r*j0:][:j0]
				for j, v := range src {
					dst[j] -= v
				}
			}
		})
		j1 = j0
	}
}

// feedback returns each row of u divided by its diagonal, in float32: the share of a column's error
// that the targets of the columns before it compensate.
func (f *factor) feedback() []float32 {
	k := f.k
	v := make([]float32, k*k)
	f.e.rows(k, 16, func(_, from, to int) {
		for i := from; i < to; i++ {
			d := f.u[i*k+i]
			for j := i + 1; j < k; j++ {
				v[i*k+j] = float32(f.u[i*k+j] / d)
			}
		}
	})
	return v
}

// permute returns the n rows of w with their columns in the order's places.
func (f *factor) permute(w []float32, n int) []float32 {
	out := make([]float32, len(w))
	f.e.rows(n, 16, func(_, from, to int) {
		for r := from; r < to; r++ {
			for a, j := range f.order {
				out[r*f.k+a] = w[r*f.k+j]
			}
		}
	})
	return out
}

// weightedErrors returns d H d^T for each of n rows, with the damped H.
func (f *factor) weightedErrors(d []float32, n int) []float64 {
	const chunk = 256
	k := f.k
	errs := make([]float64, n)
	var out []float32
	for r := 0; r < n; r += chunk {
		m := min(chunk, n-r)
		o := buffer.Grow(&out, m*k)
		f.e.product(o, d[r*k:], m, k, k, func(dst []float32, row int) { copy(dst, f.h[row*k:][:k]) })
		f.e.rows(m, 16, func(_, from, to int) {
			for i := from; i < to; i++ {
				sum := 0.0
				other := d[(r+i)*k:][:k]
				for j, v := range o[i*k:][:k] {
					sum += float64(float64(v) * float64(other[j]))
				}
				errs[r+i] = sum
			}
		})
	}
	return errs
}
