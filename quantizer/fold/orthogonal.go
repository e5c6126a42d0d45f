package fold

import (
	"math"

	"github.com/lowbit-go/gq/internal/splitmix"
)

// rotation is an orthogonal n x n matrix R: diag(signs) (P x H) / sqrt(n) with random signs if a
// Hadamard matrix of that size is known, P of Paley's and H of Sylvester's construction; otherwise
// a random orthogonal matrix; or a product of reflections.
type rotation struct {
	n     int
	signs []float64
	paley [][]int8    // entries are 1 and -1; nil: 1 x 1
	block int         // size of H, a power of two; n = len(paley) * block
	scale float64     // 1/sqrt(n)
	dense [][]float64 // rows of R, if it is not a Hadamard matrix
	// mirrors are unit vectors w, if R is the product of the reflections I - 2 w w^T, the first
	// one leftmost.
	mirrors [][]float64
}

// newRotation returns rotation number stream of a seed.
func newRotation(n int, seed, stream uint64) *rotation {
	random := newRandom(seed, stream)
	r := &rotation{n: n}
	order := paleyOrder(n)
	if order == 0 {
		r.dense = orthogonalRows(n, n, &random)
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

// turn computes x R for the row vector x. scratch has the length of x.
func (r *rotation) turn(x, scratch []float64) {
	if r.mirrors != nil {
		for _, w := range r.mirrors {
			reflect(x, w)
		}
		return
	}
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
	for at := 0; at < r.n; at += r.block {
		sylvester(x[at:][:r.block])
	}
	if r.paley != nil {
		r.paleyBlocks(x, scratch)
	}
	for i, v := range x {
		x[i] = float64(v * r.scale)
	}
}

// reflect reflects x in the plane through 0 whose unit normal is w.
func reflect(x, w []float64) {
	d := 2 * dot(x, w)
	for i, v := range w {
		x[i] -= float64(d * v)
	}
}

// sylvester multiplies x, whose length is a power of two, by Sylvester's Hadamard matrix.
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

// paleyBlocks multiplies the row vector whose entries are the blocks of x by Paley's matrix.
func (r *rotation) paleyBlocks(x, scratch []float64) {
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

// paleyOrder is the smallest order, 1 or of a Paley matrix, that makes n when multiplied by a power
// of two; 0 if there is none.
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

// orthogonalRows makes k orthonormal rows of n numbers from random ones by the Gram-Schmidt process.
func orthogonalRows(k, n int, random *splitmix.Source) [][]float64 {
	rows := make([][]float64, k)
	for i := range rows {
		x := make([]float64, n)
		for j := range x {
			for range 12 { // nearly normal
				x[j] += random.Float() - 0.5
			}
		}
		clean(x, rows[:i])
		normalize(x)
		rows[i] = x
	}
	return rows
}

func dot(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += float64(v * y[i])
	}
	return sum
}

// newRandom returns a stream of a seed.
func newRandom(seed, stream uint64) splitmix.Source {
	r := splitmix.Source(seed)
	first := r.Next()
	return splitmix.Source(first ^ stream*0xd1342543de82ef95)
}
