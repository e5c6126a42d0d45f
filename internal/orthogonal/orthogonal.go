// Package orthogonal makes orthogonal matrices and orthonormal rows from seeds. The numbers are the
// same on every CPU.
package orthogonal

import (
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
)

// Matrix is an orthogonal n x n matrix R: diag(signs) (P x H) / sqrt(n) with random signs if a
// Hadamard matrix of that size is known, P of Paley's and H of Sylvester's construction; otherwise
// a random orthogonal matrix.
type Matrix struct {
	signs []float64
	paley [][]int8    // entries are 1 and -1; nil: 1 x 1
	block int         // size of H, a power of two; n = len(paley) * block
	scale float64     // 1/sqrt(n)
	dense [][]float64 // rows of R, unless R is a Hadamard matrix
}

// New returns matrix number stream of a seed, of size n.
func New(n int, seed, stream uint64) *Matrix {
	random := Random(seed, stream)
	r := &Matrix{}
	order := paleyOrder(n)
	if order == 0 {
		r.dense = Rows(n, n, &random)
		return r
	}
	r.block, r.scale = n/order, 1/math.Sqrt(float64(n))
	if order > 1 {
		r.paley = paley(order)
	}
	r.signs = make([]float64, n)
	for i := range r.signs {
		r.signs[i] = 1
		if random.Next()>>63 == 1 {
			r.signs[i] = -1
		}
	}
	return r
}

// Turn computes x R for the row vector x. scratch has the length of x.
func (r *Matrix) Turn(x, scratch []float64) {
	if r.dense != nil {
		clear(scratch)
		for i, v := range x {
			for j, w := range r.dense[i] {
				scratch[j] += float64(v * w)
			}
		}
		copy(x, scratch)
		return
	}
	for i, s := range r.signs {
		x[i] = float64(x[i] * s)
	}
	for at := 0; at < len(x); at += r.block {
		sylvester(x[at:][:r.block])
	}
	if r.paley != nil {
		r.paleyBlocks(x, scratch)
	}
	for i, v := range x {
		x[i] = float64(v * r.scale)
	}
}

// sylvester multiplies x, with a power of two as length, by Sylvester's Hadamard matrix.
func sylvester(x []float64) {
	for h := 1; h < len(x); h *= 2 {
		for i := 0; i < len(x); i += 2 * h {
			a, b := x[i:][:h], x[i+h:][:h]
			for j, v := range a {
				a[j], b[j] = v+b[j], v-b[j]
			}
		}
	}
}

// paleyBlocks multiplies the row vector with the blocks of x as entries by Paley's matrix.
func (r *Matrix) paleyBlocks(x, scratch []float64) {
	clear(scratch)
	for i, row := range r.paley {
		from := x[i*r.block:][:r.block]
		for j, sign := range row {
			to := scratch[j*r.block:][:r.block]
			if sign > 0 {
				for k, v := range from {
					to[k] += v
				}
			} else {
				for k, v := range from {
					to[k] -= v
				}
			}
		}
	}
	copy(x, scratch)
}

// paleyOrder is the smallest order, 1 or of a Paley matrix, that divides n to a power of two, or 0.
func paleyOrder(n int) int {
	best := 0
	for order := n; ; order /= 2 {
		switch q, ok := order-1, order%4 == 0; {
		case order == 1, ok && prime(q), ok && (order/2-1)%4 == 1 && prime(order/2-1):
			best = order
		}
		if order%2 != 0 {
			return best
		}
	}
}

func prime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// paley is a Hadamard matrix of order n by R. Paley ("On orthogonal matrices", 1933): his first
// construction if n-1 is prime, his second if n/2-1 is a prime that is 1 modulo 4.
func paley(n int) [][]int8 {
	h := make([][]int8, n)
	for i := range h {
		h[i] = make([]int8, n)
	}
	if q := n - 1; prime(q) {
		square := residues(q)
		for i := range n {
			for j := range n {
				switch {
				case i == 0 || i == j:
					h[i][j] = 1
				case j == 0:
					h[i][j] = -1
				default:
					h[i][j] = square[(i-j+q)%q]
				}
			}
		}
		return h
	}
	q := n/2 - 1
	square := residues(q)
	for i := range q + 1 {
		for j := range q + 1 {
			s := int8(1) // of the symmetric conference matrix
			if i > 0 && j > 0 && i != j {
				s = square[(i-j+q)%q]
			}
			a, b := [2]int8{s, s}, [2]int8{s, -s}
			if i == j {
				a, b = [2]int8{1, -1}, [2]int8{-1, -1}
			}
			copy(h[2*i][2*j:], a[:])
			copy(h[2*i+1][2*j:], b[:])
		}
	}
	return h
}

// residues[i] is 1 for squares modulo q, -1 for others.
func residues(q int) []int8 {
	r := make([]int8, q)
	for i := range r {
		r[i] = -1
	}
	for i := range q {
		r[i*i%q] = 1
	}
	return r
}

// Rows makes k orthonormal rows of n numbers from random rows by Gram-Schmidt.
func Rows(k, n int, random *detmath.Source) [][]float64 {
	rows := make([][]float64, k)
	for i := range rows {
		x := make([]float64, n)
		for j := range x {
			for range 12 { // nearly normal
				x[j] += random.Float() - 0.5
			}
		}
		Clean(x, rows[:i])
		Normalize(x)
		rows[i] = x
	}
	return rows
}

// Clean makes x orthogonal to orthonormal rows, twice: once leaves the condition number's error.
func Clean(x []float64, rows [][]float64) {
	for range 2 {
		for _, row := range rows {
			d := Dot(x, row)
			for j, v := range row {
				x[j] -= float64(d * v)
			}
		}
	}
}

// Normalize divides x by its length, and reports whether x has one.
func Normalize(x []float64) bool {
	s := Dot(x, x)
	if !(s > 0) {
		return false
	}
	s = 1 / math.Sqrt(s)
	for j, v := range x {
		x[j] = float64(v * s)
	}
	return true
}

// Dot adds the products in order.
func Dot(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += float64(v * y[i])
	}
	return sum
}

// Random is random source number stream of a seed.
func Random(seed, stream uint64) detmath.Source {
	r := detmath.Source(seed)
	first := r.Next()
	return detmath.Source(first ^ stream*0xd1342543de82ef95)
}
