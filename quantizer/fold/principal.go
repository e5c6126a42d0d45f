package fold

import (
	"math"

	"github.com/lowbit-go/gq/internal/splitmix"
	"github.com/lowbit-go/gq/kernels"
)

// principalSteps is the number of orthogonal iterations. A direction whose eigenvalue exceeds the
// next one by a tenth is then found to 1 in 50; any orthonormal directions keep the function.
const principalSteps = 40

// principal returns the k principal directions of vectors of n numbers, the largest first: the
// eigenvectors of the sum of x x^T, by orthogonal iteration from random vectors.
func principal(x [][]float64, n, k int, random *splitmix.Source, pool *kernels.Pool) [][]float64 {
	v := orthogonalRows(k, n, random)
	next := make([][]float64, k)
	for range principalSteps {
		pool.Run(k, func(_, i int) {
			sum := make([]float64, n)
			for _, row := range x {
				d := dot(row, v[i])
				for c, y := range row {
					sum[c] += float64(d * y)
				}
			}
			next[i] = sum
		})
		for i, u := range next {
			clean(u, next[:i])
			if !normalize(u) { // fewer directions than k: the last ones stay as they are
				copy(u, v[i])
				clean(u, next[:i])
				normalize(u)
			}
			copy(v[i], u)
		}
	}
	return v
}

// clean makes x orthogonal to the rows, which are orthonormal: twice, because once leaves an error
// of the size of the condition number.
func clean(x []float64, rows [][]float64) {
	for range 2 {
		for _, row := range rows {
			d := dot(x, row)
			for j, v := range row {
				x[j] -= float64(d * v)
			}
		}
	}
}

// normalize divides x by its length, unless that is 0.
func normalize(x []float64) bool {
	s := dot(x, x)
	if !(s > 0) {
		return false
	}
	s = 1 / math.Sqrt(s)
	for j, v := range x {
		x[j] = float64(v * s)
	}
	return true
}

// concentrating returns the rotation that turns direction i into channel i of the list, or its
// negative, by one reflection each. The directions are orthonormal.
func concentrating(directions [][]float64, channels []int) *rotation {
	r := &rotation{n: len(directions[0]), mirrors: [][]float64{}}
	for i, v := range directions {
		w := append([]float64(nil), v...)
		for _, m := range r.mirrors {
			reflect(w, m)
		}
		for _, c := range channels[:i] {
			w[c] = 0 // but for rounding it is already
		}
		normalize(w)
		// The sign that loses no digits.
		c := channels[i]
		if w[c] < 0 {
			w[c]--
		} else {
			w[c]++
		}
		normalize(w)
		r.mirrors = append(r.mirrors, w)
	}
	return r
}
