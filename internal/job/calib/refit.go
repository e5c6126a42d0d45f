package calib

import (
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
)

// refitRows is the number of rows with n knobs that are refitted at a time: their normal equations
// take at most 64 MiB, unless a single row's take more.
func refitRows(n int) int { return max(1, min(refineRows, (16<<20)/(n*n))) }

// refit sets each row's knobs to the least-squares solution for its codes.
func (s *solver) refit() {
	k := s.k
	span, kinds := s.span()
	each := (s.groups + span - 1) / span // knobs of a kind
	n := each * kinds
	rows := refitRows(n)
	take := s.e.floats.Take
	th, out := take(rows*k), take(rows*k) // targets times H, products
	normal, rhs := take(rows*n*n), take(rows*n)
	steps := take(kinds * rows * k) // of each weight with its knobs
	defer s.e.floats.Put(th, out, normal, rhs, steps)
	members := make([][]int, each) // places of each knob
	for a, g := range s.place {
		members[g/span] = append(members[g/span], a)
	}
	h := s.f.h
	var x, y []float32
	for r0 := 0; r0 < s.n; r0 += rows {
		m := min(rows, s.n-r0)
		s.e.product(th, m, k, k, operand{Data: s.target[r0*k:], Stride: k}, operand{Data: h, Stride: k})
		for kind := range kinds {
			for i := range m * k {
				r := r0 + i/k
				steps[kind*rows*k+i] = s.step(kind, r, s.place[i%k], float32(s.codes[r0*k+i]))
			}
		}
		clear(rhs)
		clear(normal)
		for knob := range n {
			own, steps1 := members[knob%each], steps[knob/each*rows*k:]
			x := buffer.Grow(&x, m*len(own))
			for r := range m {
				for i, a := range own {
					x[r*len(own)+i] = steps1[r*k+a]
				}
			}
			y := buffer.Grow(&y, len(own)*k)
			for i, a := range own {
				copy(y[i*k:], h[a*k:][:k])
			}
			s.e.product(out, m, k, len(own), operand{Data: x, Stride: len(own)}, operand{Data: y, Stride: k})
			s.e.rows(m, 16, func(_, from, to int) {
				sums := make([]float64, n)
				for r := from; r < to; r++ {
					clear(sums)
					for kind := range kinds {
						steps := steps[(kind*rows+r)*k:]
						for a, v := range out[r*k:][:k] {
							sums[kind*each+s.place[a]/span] += float64(v * steps[a])
						}
					}
					for b, v := range sums {
						normal[(r*n+knob)*n+b] = float32(v)
					}
					b := 0.0
					for _, a := range own {
						b += float64(steps1[r*k+a] * th[r*k+a])
					}
					rhs[r*n+knob] = float32(b)
				}
			})
		}
		s.e.rows(m, 1, func(_, from, to int) {
			for r := from; r < to; r++ {
				s.refitRow(r0+r, kinds, normal[r*n*n:][:n*n], rhs[r*n:][:n])
			}
		})
	}
}

// refitRow solves A s = b for a row's knobs and turns the knobs.
func (s *solver) refitRow(r, kinds int, normal, rhs []float32) {
	n := len(rhs)
	a, b := make([]float64, n*n), make([]float64, n)
	trace := 0.0
	for i := range n {
		trace += float64(normal[i*n+i])
	}
	if !(trace > 0) {
		return
	}
	ridge := 1e-7 * trace / float64(n)
	var now []float32
	for kind := range kinds {
		now = append(now, s.knobs(kind, r)...)
	}
	// The unknowns are changes of knobs, so the ridge favours the present values.
	for i := range n {
		b[i] = float64(rhs[i])
		for j := range n {
			v := (float64(normal[i*n+j]) + float64(normal[j*n+i])) / 2
			a[i*n+j] = v
			b[i] -= float64(v * float64(now[j]))
		}
		a[i*n+i] += ridge
	}
	for g, is := range s.held.row(r) { // each has a knob of its own
		if is {
			pin(a, b, n, g)
		}
	}
	if !solveSymmetric(a, b, n) {
		return
	}
	for kind := range kinds {
		knobs := s.knobs(kind, r)
		for i := range knobs {
			at := kind*len(knobs) + i
			s.turn(kind, &knobs[i], float64(now[at])+b[at])
		}
	}
	if s.blocks != nil {
		s.blocksChanged(r)
	}
}

// solveSymmetric replaces b by a^-1 b. a is positive definite; its lower triangle is overwritten.
func solveSymmetric(a, b []float64, n int) bool {
	for i := range n {
		for j := 0; j <= i; j++ {
			v := a[i*n+j]
			for p := range j {
				v -= float64(a[i*n+p] * a[j*n+p])
			}
			if i > j {
				a[i*n+j] = v / a[j*n+j]
				continue
			}
			if !(v > 0) {
				return false
			}
			a[i*n+i] = math.Sqrt(v)
		}
	}
	for i := range n {
		for p := range i {
			b[i] -= float64(a[i*n+p] * b[p])
		}
		b[i] /= a[i*n+i]
	}
	for i := n - 1; i >= 0; i-- {
		for p := i + 1; p < n; p++ {
			b[i] -= float64(a[p*n+i] * b[p])
		}
		b[i] /= a[i*n+i]
	}
	return true
}
