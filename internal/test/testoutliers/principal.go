package testoutliers

import (
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/orthogonal"
	"github.com/lowbit-go/gq/kernels"
)

// principalSteps is the number of orthogonal iterations. A direction is then found to 1 in 50 if
// its eigenvalue exceeds the next by a tenth; any orthonormal directions keep the function.
const principalSteps = 40

// principal returns the k principal directions of vectors of n numbers, the largest first: the
// eigenvectors of the sum of x x^T, by orthogonal iteration from random vectors.
func principal(x [][]float64, n, k int, random *detmath.Source, pool *kernels.Pool) [][]float64 {
	v := orthogonal.Rows(k, n, random)
	next := make([][]float64, k)
	for range principalSteps {
		pool.Run(k, func(_, i int) {
			sum := make([]float64, n)
			for _, row := range x {
				d := orthogonal.Dot(row, v[i])
				for c, y := range row {
					sum[c] += float64(d * y)
				}
			}
			next[i] = sum
		})
		for i, u := range next {
			orthogonal.Clean(u, next[:i])
			if !orthogonal.Normalize(u) { // fewer directions than k: the last rows stay
				copy(u, v[i])
				orthogonal.Clean(u, next[:i])
				orthogonal.Normalize(u)
			}
			copy(v[i], u)
		}
	}
	return v
}

// concentrating returns the rotation that turns direction i into channel i of the list, or its
// negative, by a reflection I - 2 w w^T each. The directions are orthonormal.
func concentrating(directions [][]float64, channels []int) func(x, scratch []float64) {
	var mirrors [][]float64 // w
	for i, v := range directions {
		w := append([]float64(nil), v...)
		for _, m := range mirrors {
			reflect(w, m)
		}
		for _, c := range channels[:i] {
			w[c] = 0 // except for rounding, w[c] is 0 already
		}
		orthogonal.Normalize(w)
		// The sign that loses no digits.
		c := channels[i]
		if w[c] < 0 {
			w[c]--
		} else {
			w[c]++
		}
		orthogonal.Normalize(w)
		mirrors = append(mirrors, w)
	}
	return func(x, _ []float64) {
		for _, w := range mirrors {
			reflect(x, w)
		}
	}
}

// reflect reflects x in the plane through 0 with the unit normal w.
func reflect(x, w []float64) {
	d := 2 * orthogonal.Dot(x, w)
	for i, v := range w {
		x[i] -= float64(d * v)
	}
}
