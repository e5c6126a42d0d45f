package calib

import (
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/vec"
)

// unitError is the error of the weights of a point, or of two points with common signs, as a
// quadratic form of their differences from a target.
type unitError struct {
	n        int
	form     [rounding.UnitMost][rounding.UnitMost]float32
	diagonal [rounding.UnitMost]float32
}

// octet has a value of each weight of a unitError.
type octet = [rounding.UnitMost]float32

// gradient returns the product of the form and a difference, and the difference's error.
func (u *unitError) gradient(d *octet) (g octet, e float32) {
	for i := range u.n {
		for l := range u.n {
			g[i] += float32(u.form[i][l] * d[l])
		}
		e += float32(g[i] * d[i])
	}
	return g, e
}

// nearer moves weights and codes to the points that are nearest, by the diagonal, to where the
// weights would have to move on their own if the other weights stayed: gradient is the product of
// the form and target minus weights. nearer changes nothing unless the error becomes smaller.
func (u *unitError) nearer(p *rounding.Points, codes []int8, weights, gradient *octet, scale float32) (moved octet, better bool) {
	var to, move octet
	var next [rounding.UnitMost]int8
	for i := range u.n {
		to[i] = weights[i] + gradient[i]/u.diagonal[i]
	}
	p.Round(next[:], to[:], u.diagonal[:], scale)
	change := float32(0)
	for i := range u.n {
		move[i] = float32(float32(next[i])*scale) - weights[i]
		change -= 2 * float32(gradient[i]*move[i])
	}
	_, e := u.gradient(&move)
	if !(e+change < 0) {
		return move, false
	}
	copy(codes, next[:u.n])
	for i := range u.n {
		weights[i] = float32(float32(next[i]) * scale)
	}
	return move, true
}

// pointCodes chooses the codes of a block in work, a point's columns together. Their elements of U
// d^T without U's diagonal are left = z - (1 + N) weights, with U's elements N above the diagonal.
// They would be 0 at the centre (1 + N)^-1 z: their squares are a form of the difference from it.
func (s *solver) pointCodes(b *blockRows, all []float32, r, m, j0, w int) {
	k, p := s.k, s.common.points
	u := unitError{n: p.Width}
	for j := w - u.n; j >= 0; j -= u.n {
		var rows [rounding.UnitMost]octet // 1 + N
		var sums [rounding.UnitMost]column
		for i := range u.n {
			row := s.f.u[(j0+j+i)*k+j0:]
			vec.ColumnSums(&sums[i], all[(j+u.n)*abreast:], row[j+u.n:w])
			copy(rows[i][i:u.n], row[j+i:])
		}
		u.square(&rows, s.f.pivot[j0+j:])
		for c := range m {
			var z, centre, weights octet
			var codes [rounding.UnitMost]int8
			scale := s.scales[(r+c)*s.groups+s.place[j0+j]]
			for i := u.n - 1; i >= 0; i-- {
				z[i] = b.left[j+i][c] + sums[i][c]
				for l := i; l < u.n; l++ {
					z[i] += float32(rows[i][l] * b.errors[j+l][c])
				}
				centre[i] = z[i]
				for l := i + 1; l < u.n; l++ {
					centre[i] -= float32(rows[i][l] * centre[l])
				}
			}
			u.choose(p, codes[:], &weights, &centre, scale)
			for i := range u.n {
				left := z[i]
				for l := i; l < u.n; l++ {
					left -= float32(rows[i][l] * weights[l])
				}
				b.codes[j+i][c], b.left[j+i][c] = float32(codes[i]), left
				b.errors[j+i][c] -= weights[i]
			}
		}
	}
}

// square sets the form to the sum of squares of rows, each times its factor.
func (u *unitError) square(rows *[rounding.UnitMost]octet, factors []float64) {
	for a := range u.n {
		for c := range u.n {
			sum := 0.0
			for i := range min(a, c) + 1 {
				sum += float64(float64(rows[i][a])*float64(rows[i][c])) * float64(factors[i]*factors[i])
			}
			u.form[a][c] = float32(sum)
		}
		u.diagonal[a] = u.form[a][a]
	}
}

// choose sets codes to points near a target, in three steps.
func (u *unitError) choose(p *rounding.Points, codes []int8, weights, target *octet, scale float32) {
	p.Round(codes, target[:], u.diagonal[:], scale)
	for i := range u.n {
		weights[i] = float32(float32(codes[i]) * scale)
	}
	for range 2 {
		var d octet
		for i := range u.n {
			d[i] = target[i] - weights[i]
		}
		g, _ := u.gradient(&d)
		u.nearer(p, codes, weights, &g, scale)
	}
}

// sweepPoints is sweep for a row of a type with points, with the row's error times H.
func (s *solver) sweepPoints(r int, gradient []float32) {
	k, p := s.k, s.common.points
	u := unitError{n: p.Width}
	for a := k - u.n; a >= 0; a -= u.n {
		var weights, g octet
		scale, codes := s.scales[r*s.groups+s.place[a]], s.codes[r*k+a:][:u.n]
		for i := range u.n {
			copy(u.form[i][:u.n], s.f.h[(a+i)*k+a:])
			u.diagonal[i] = u.form[i][i]
			weights[i], g[i] = float32(float32(codes[i])*scale), gradient[a+i]
		}
		move, better := u.nearer(p, codes, &weights, &g, scale)
		if !better {
			continue
		}
		for i := range u.n {
			for b, v := range s.f.h[(a+i)*k:][:a] { // the columns behind a are done
				gradient[b] -= float32(move[i] * v)
			}
		}
	}
}
