package calib

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/kernels"
)

// block is the number of columns that are eliminated, or quantized, before the others of a panel
// are updated, and panel the number of columns before all others are. A product of 512 terms takes
// two thirds of the time of four products of 128 terms that read and write the sums four times.
const (
	block = 128
	panel = 4 * block
)

// factor is the Cholesky factor of a damped Hessian, with the columns in ascending activation
// order: columns are quantized from the last to the first, so the column with the largest diagonal
// is last.
//
// Blocks on the diagonal are factorized in float64, everything else in float32. That is enough: the
// damping is at least a hundredth of the mean diagonal, and errors of float32 are a millionth of
// the two diagonal elements of an element's row and column.
type factor struct {
	e      *engine
	k      int
	n      int   // rows of activations
	order  []int // the column at each place
	dead   int   // columns that were always zero
	lambda float64
	// u is upper, [k][k] in the order's places, with zeros below the diagonal: U with U^T U = H +
	// lambda. After feedback, each row is divided by its diagonal.
	u     []float32
	pivot []float64 // the diagonal of U
	h     []float32 // H + lambda, in the order's places, for refine
	diag  []float64 // of H, by column
}

var errNotPositive = errors.New("calib: the Hessian is not positive definite, even with strong damping: are the activations finite?")

// factorize damps the Hessian with lambda = max(.01, .5 k/n) times its mean diagonal and factorizes
// in the Hessian's memory: g has no Hessian afterwards. keep says whether h is wanted. Every unit
// columns stay together, in their natural order.
func factorize(e *engine, g *hessian, keep bool, unit int) (*factor, error) {
	k := g.k
	f := &factor{e: e, k: k, n: g.n, order: make([]int, k), diag: make([]float64, k), pivot: make([]float64, k), u: g.h}
	g.h = nil
	mean := 0.0
	for j := range k {
		f.order[j] = j
		f.diag[j] = float64(f.u[j*k+j])
		mean += f.diag[j]
		if f.diag[j] == 0 {
			f.dead++
		}
	}
	mean /= float64(max(1, k-f.dead))
	sizes := make([]float64, k)
	for j := range k {
		for _, d := range f.diag[j/unit*unit:][:unit] {
			sizes[j] += d
		}
	}
	slices.SortStableFunc(f.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(sizes[a], sizes[b]), b/unit-a/unit)
	})
	f.lambda = float64(max(.01, .5*float64(k)/float64(g.n)) * mean)
	f.reorder()
	band := f.e.floats.Take(k * kernels.GramBand)
	defer f.e.floats.Put(band)
	f.copyBand(band, false)
	for range 6 {
		f.fill()
		done := f.cholesky()
		f.copyBand(band, true)
		if !done {
			f.lambda *= 10
			continue
		}
		if keep {
			f.keep()
		}
		f.e.rows(k, 64, func(_, from, to int) {
			for a := from; a < to; a++ {
				clear(f.u[a*k:][:a])
			}
		})
		return f, nil
	}
	return nil, errNotPositive
}

// reorder copies the upper triangle of the Hessian, in columns' natural order, to the lower
// triangle, in the order's places. This copy stays until a damping allows to factorize.
func (f *factor) reorder() {
	k, u := f.k, f.u
	f.e.rows(k, 16, func(_, from, to int) {
		for a := from; a < to; a++ {
			i := f.order[a]
			for b, j := range f.order[:a] {
				u[a*k+b] = u[min(i, j)*k+max(i, j)]
			}
		}
	})
}

// copyBand saves or restores the elements below the diagonal that cholesky may overwrite.
func (f *factor) copyBand(band []float32, restore bool) {
	for a := range f.k {
		from := max(0, a-kernels.GramBand)
		row, saved := f.u[a*f.k+from:a*f.k+a], band[a*kernels.GramBand:][:a-from]
		if restore {
			row, saved = saved, row
		}
		copy(saved, row)
	}
}

// damped is an element of the damped Hessian's diagonal, in the order's places.
func (f *factor) damped(a int) float32 { return float32(f.diag[f.order[a]] + f.lambda) }

func (f *factor) keep() {
	k := f.k
	f.h = f.e.floats.Take(k * k)
	f.mirror(func(low, high int) {
		f.h[low], f.h[high] = f.u[low], f.u[low]
	})
	for a := range k {
		f.h[a*k+a] = f.damped(a)
	}
}

// fill sets the upper triangle of u to the negative damped Hessian; products are added later.
func (f *factor) fill() {
	f.mirror(func(low, high int) { f.u[high] = -f.u[low] })
	for a := range f.k {
		f.u[a*f.k+a] = -f.damped(a)
	}
}

// mirror calls set with the indices of each element below the diagonal and of the opposite element.
func (f *factor) mirror(set func(low, high int)) {
	const tile = 64 // so that both sides stay in the cache
	k := f.k
	f.e.rows(k, tile, func(_, from, to int) {
		for b0 := 0; b0 < to; b0 += tile {
			for a := from; a < to; a++ {
				for b := b0; b < min(b0+tile, a); b++ {
					set(a*k+b, b*k+a)
				}
			}
		}
	})
}

// cholesky factorizes the upper triangle of u, the negative of a matrix, in place, and overwrites
// elements below the diagonal, see copyBand. Each element is computed by the same operations in the
// same order for any number of threads.
func (f *factor) cholesky() bool {
	k, u := f.k, f.u
	for k0 := 0; k0 < k; k0 += panel {
		k1 := min(k0+panel, k)
		for i0 := k0; i0 < k1; i0 += block {
			i1 := min(i0+block, k1)
			above := operand{Data: u[k0*k+i0:], Stride: k} // the panel's finished rows
			left := above
			left.Transposed = true
			f.e.add(u[i0*k+i0:], k, i1-i0, k-i0, i0-k0, left, above)
			if !f.diagonalBlock(i0, i1) {
				return false
			}
			if i1 < k {
				f.blockRows(i0, i1)
			}
		}
		if k1 < k {
			f.e.addGram(u[k1*k+k1:], k, k-k1, k1-k0, operand{Data: u[k0*k+k1:], Stride: k})
		}
	}
	return true
}

func (f *factor) diagonalBlock(k0, k1 int) bool {
	var d [block][block]float64
	k, w := f.k, k1-k0
	for i := range w {
		for j := i; j < w; j++ {
			d[i][j] = -float64(f.u[(k0+i)*k+k0+j])
		}
	}
	for i := range w {
		pivot := d[i][i]
		if !(pivot > 0) || math.IsInf(pivot, 0) {
			return false
		}
		pivot = math.Sqrt(pivot)
		f.pivot[k0+i] = pivot
		d[i][i] = pivot
		for j := i + 1; j < w; j++ {
			d[i][j] /= pivot
		}
		for p := i + 1; p < w; p++ {
			c := d[i][p]
			for j := p; j < w; j++ {
				d[p][j] -= float64(c * d[i][j])
			}
		}
		for j := i; j < w; j++ {
			f.u[(k0+i)*k+k0+j] = float32(d[i][j])
		}
	}
	return true
}

// narrow is the number of rows of a block that are eliminated in turn.
const narrow = 32

// blockRows computes the rest of a block's rows from the factorized diagonal block.
func (f *factor) blockRows(k0, k1 int) {
	k, u, rest := f.k, f.u, f.k-k1
	for from := k0; from < k1; from += narrow {
		to := min(from+narrow, k1)
		if from > k0 {
			above := operand{Data: u[k0*k+from:], Stride: k, Transposed: true}
			f.e.add(u[from*k+k1:], k, to-from, rest, from-k0, above, operand{Data: u[k0*k+k1:], Stride: k})
		}
		f.e.rows(rest, 256, func(_, a, b int) {
			for i := from; i < to; i++ {
				row := u[i*k+k1+a : i*k+k1+b]
				for p := from; p < i; p++ {
					c := u[p*k+i]
					for j, v := range u[p*k+k1+a:][:len(row)] {
						row[j] += float32(c * v)
					}
				}
				d := -u[i*k+i]
				for j := range row {
					row[j] /= d
				}
			}
		})
	}
}

// solve replaces b, [n][k] in the order's places, by B (H + lambda)^-1, before feedback.
func (f *factor) solve(b []float32, n int) {
	k, u := f.k, f.u
	part := f.e.floats.Take(n * min(panel, k)) // the negative columns of a panel of the solution
	step := f.e.floats.Take(n * min(block, k))
	above := f.e.floats.Take(k * min(panel, k))
	defer f.e.floats.Put(part, step, above)
	var inverse []float32
	// solveBlock computes columns i0 to i1-1 of the solution, and the negated solution in the same
	// columns of negative, with rows of w values.
	solveBlock := func(negative []float32, w, i0, i1 int, transposed bool) {
		m := i1 - i0
		inverse = f.negativeInverse(inverse, i0, i1)
		f.e.product(step, n, m, m, operand{Data: b[i0:], Stride: k}, operand{Data: inverse, Stride: m, Transposed: transposed})
		f.e.rows(n, 64, func(_, from, to int) {
			for r := from; r < to; r++ {
				row := b[r*k+i0:][:m]
				copy(negative[r*w:][:m], step[r*m:])
				for j, v := range negative[r*w:][:m] {
					row[j] = -v
				}
			}
		})
	}
	// Y U = B, from the first panel.
	for j0 := 0; j0 < k; j0 += panel {
		j1 := min(j0+panel, k)
		w := j1 - j0
		for i0 := j0; i0 < j1; i0 += block {
			i1 := min(i0+block, j1)
			negative := part[i0-j0:]
			solveBlock(negative, w, i0, i1, false)
			if i1 < j1 {
				f.e.add(b[i1:], k, n, j1-i1, i1-i0, operand{Data: negative, Stride: w}, operand{Data: u[i0*k+i1:], Stride: k})
			}
		}
		if j1 < k {
			f.e.add(b[j1:], k, n, k-j1, w, operand{Data: part, Stride: w}, operand{Data: u[j0*k+j1:], Stride: k})
		}
	}
	// Z U^T = Y, from the last. Blocks of part are in this order too.
	for j1 := k; j1 > 0; {
		j0 := (j1 - 1) / panel * panel
		w := j1 - j0
		for i1 := j1; i1 > j0; {
			i0 := (i1 - 1) / block * block
			negative := part[j1-i1:]
			solveBlock(negative, w, i0, i1, true)
			f.e.add(b[j0:], k, n, i0-j0, i1-i0, operand{Data: negative, Stride: w}, operand{Data: u[j0*k+i0:], Stride: k, Transposed: true})
			i1 = i0
		}
		f.e.add(b, k, n, j0, w, operand{Data: part, Stride: w}, f.above(above, j0, j1))
		j1 = j0
	}
}

// above returns the transpose of columns j0 to j1-1 of u, a panel, in the rows above the panel.
// Blocks go from the last to the first, the order in which errors and solutions are found and
// summed. The operand is in dst, of at least j0 * (j1-j0) elements.
func (f *factor) above(dst []float32, j0, j1 int) operand {
	w := j1 - j0
	f.e.rows(j0, 64, func(_, from, to int) {
		for r := from; r < to; r++ {
			for i1, at := j1, r*w; i1 > j0; {
				i0 := (i1 - 1) / block * block
				at += copy(dst[at:], f.u[r*f.k+i0:r*f.k+i1])
				i1 = i0
			}
		}
	})
	return operand{Data: dst, Stride: w, Transposed: true}
}

// negativeInverse returns -U^-1 of a block on the diagonal.
func (f *factor) negativeInverse(dst []float32, j0, j1 int) []float32 {
	w := j1 - j0
	dst = buffer.Grow(&dst, w*w)
	clear(dst)
	var x [block]float64
	for c := range w { // column c of the inverse, from its last element up
		for i := c; i >= 0; i-- {
			s := 0.0
			if i == c {
				s = 1
			}
			row := f.u[(j0+i)*f.k+j0:]
			for p := i + 1; p <= c; p++ {
				s -= float64(float64(row[p]) * x[p])
			}
			x[i] = s / f.pivot[j0+i]
			dst[i*w+c] = float32(-x[i])
		}
	}
	return dst
}

// feedback divides each row of u by its diagonal: the result is the share of a column's error that
// the targets of the columns before compensate. solve and feedback must not be called afterwards.
func (f *factor) feedback() {
	k := f.k
	f.e.rows(k, 16, func(_, from, to int) {
		for i := from; i < to; i++ {
			row := f.u[i*k+i : (i+1)*k]
			row[0] = 1
			for j := 1; j < len(row); j++ {
				row[j] = float32(float64(row[j]) / f.pivot[i])
			}
		}
	})
}

// permute returns the n rows of w with their columns in the order's places.
func (f *factor) permute(w []float32, n int) []float32 {
	out := f.e.floats.Take(len(w))
	f.e.rows(n, 16, func(_, from, to int) {
		for r := from; r < to; r++ {
			for a, j := range f.order {
				out[r*f.k+a] = w[r*f.k+j]
			}
		}
	})
	return out
}

// wideBlock is the number of columns that weightedErrors multiplies at a time, of k.
func wideBlock(k int) int { return min(max(k/16, block), 512) }

// weightedErrors returns d (H + lambda) d^T for each of n rows, as the square of U d^T, after
// feedback. With limits, a row's sum ends beyond the row's limit, and d is overwritten.
func (f *factor) weightedErrors(d []float32, n int, limits []float64) []float64 {
	k := f.k
	wide := wideBlock(k)
	errs, rows := make([]float64, n), make([]int, n)
	for r := range rows {
		rows[r] = r
	}
	out := f.e.floats.Take(n * min(wide, k))
	defer f.e.floats.Put(out)
	// The first rows of U have the most elements, and the most of the sum.
	for j0 := 0; j0 < k && len(rows) > 0; j0 += wide {
		j1 := min(j0+wide, k)
		w := j1 - j0
		f.e.product(out, len(rows), w, k-j0, operand{Data: d[j0:], Stride: k}, operand{Data: f.u[j0*k+j0:], Stride: k, Transposed: true})
		f.e.rows(len(rows), 64, func(_, from, to int) {
			for i := from; i < to; i++ {
				errs[rows[i]] += f.squares(out[i*w:][:w], j0)
			}
		})
		if limits == nil {
			continue
		}
		left := rows[:0]
		for i, r := range rows {
			if errs[r] > limits[r] {
				continue
			}
			copy(d[len(left)*k+j1:][:k-j1], d[i*k+j1:])
			left = append(left, r)
		}
		rows = left
	}
	return errs
}

// squares sums the squares of elements of U d^T from column j0 on, given without U's diagonal.
func (f *factor) squares(d []float32, j0 int) (sum float64) {
	for j, v := range d {
		e := float64(v) * f.pivot[j0+j]
		sum += float64(e * e)
	}
	return sum
}
