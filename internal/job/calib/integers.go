package calib

import "math"

// adjust moves the integer sub-scales and minima of block types, and fractional zero points, to the
// minimum of the error, group by group, while codes and the other groups stay. With sweeps, each
// row's codes are swept afterwards.
func (s *solver) adjust(sweeps bool) {
	group := (*solver).adjustGroup
	switch {
	case s.scheme.Fractions:
		group = (*solver).adjustZero
	case s.blocks == nil || s.blocks[0].SubScales == nil:
		return
	}
	members := make([][]int, s.groups) // places of each group
	for a, g := range s.place {
		members[g] = append(members[g], a)
	}
	d := s.errors()
	grad := s.e.floats.Take(min(refineRows, s.n) * s.k)
	defer s.e.floats.Put(d, grad)
	for r0 := 0; r0 < s.n; r0 += refineRows {
		m := min(refineRows, s.n-r0)
		s.gradients(grad, d, r0, m)
		s.e.rows(m, 4, func(_, from, to int) {
			units := [2][]float32{make([]float32, s.k), make([]float32, s.k)}
			for r := r0 + from; r < r0+to; r++ {
				gradient := grad[(r-r0)*s.k:][:s.k]
				for g, own := range members {
					group(s, r, g, own, &units, gradient)
				}
				if s.blocks != nil {
					s.blocksChanged(r)
				}
				if sweeps {
					s.sweepRow(r, gradient)
				}
			}
		})
	}
}

// adjustGroup moves the integers of group g of row r, with weights at own, and updates gradient,
// the row's error times H. A sub-scale also moves the weights' mean, so its minimum moves too.
func (s *solver) adjustGroup(r, g int, own []int, units *[2][]float32, gradient []float32) {
	f := &s.blocks[r]
	block := g / (s.groups / len(f.Scales))
	sub, least := units[0][:len(own)], units[1][:len(own)]
	clear(least)
	// A unit of the sub-scale adds sub to the weights, a unit of the sub-minimum adds least.
	for i, a := range own {
		sub[i] = float32(float32(s.codes[r*s.k+a]) * float32(f.Scales[block]*s.common.sub))
		if f.SubMins != nil {
			least[i] = -f.Mins[block]
		}
	}
	e := s.moveErrors(own, sub, least, gradient)
	subLeast, subMost, step, minMost := s.scheme.Integers()
	wasSub, wasMin := int(f.SubScales[g]), 0
	if f.SubMins != nil {
		wasMin = int(f.SubMins[g])
	}
	minFor := func(sub int) int {
		return min(max(wasMin+integer((e.gain[1]-float64(e.cost*float64(sub-wasSub)))/e.costs[1]), 0), minMost)
	}
	bestSub, bestMin, best := wasSub, wasMin, 0.0
	det := float64(e.costs[0]*e.costs[1]) - float64(e.cost*e.cost)
	move := (float64(e.gain[0]*e.costs[1]) - float64(e.gain[1]*e.cost)) / det
	if e.costs[1] == 0 {
		move = e.gain[0] / e.costs[0]
	}
	move /= float64(step)
	for _, to := range [...]int{wasSub, wasSub + step*integer(math.Floor(move)), wasSub + step*integer(math.Ceil(move))} {
		to = min(max(to, subLeast), subMost)
		m := minFor(to)
		if change := e.change(float64(to-wasSub), float64(m-wasMin)); change < best {
			bestSub, bestMin, best = to, m, change
		}
	}
	f.SubScales[g] = int8(bestSub)
	s.move(own, sub, float32(bestSub-wasSub), gradient)
	if f.SubMins != nil {
		f.SubMins[g] = uint8(bestMin)
		s.move(own, least, float32(bestMin-wasMin), gradient)
	}
}

// adjustZero is adjustGroup for a fractional zero point.
func (s *solver) adjustZero(r, g int, own []int, units *[2][]float32, gradient []float32) {
	if held := s.held.row(r); held != nil && held[g] {
		return
	}
	zero := &s.zeros[r*s.groups+g]
	step, none := units[0][:len(own)], units[1][:len(own)]
	clear(none)
	for i := range step {
		step[i] = -float32(s.scales[r*s.groups+g] * s.unit)
	}
	e := s.moveErrors(own, step, none, gradient)
	was := int(*zero)
	to := min(max(was+integer(e.gain[0]/e.costs[0]), math.MinInt8), math.MaxInt8)
	*zero = int8(to)
	s.move(own, step, float32(to-was), gradient)
}

// integer rounds to the nearest integer, or to 0 for magnitudes of 256 and more and for NaN.
func integer(v float64) int {
	if v = math.RoundToEven(v); math.Abs(v) < 256 {
		return int(v)
	}
	return 0
}

// moveErrors says how the error of a row changes if its weights grow by x of a unit and y of
// another: minus twice gain times (x, y), plus the quadratic form of the costs.
type moveErrors struct {
	gain, costs [2]float64
	cost        float64 // of both
}

func (e *moveErrors) change(x, y float64) float64 {
	linear := float64(e.gain[0]*x) + float64(e.gain[1]*y)
	square := float64(float64(e.costs[0]*x)*x) + float64(float64(e.costs[1]*y)*y)
	return square + 2*float64(float64(e.cost*x)*y) - 2*linear
}

func (s *solver) moveErrors(own []int, x, y, gradient []float32) (e moveErrors) {
	for i, a := range own {
		h := s.f.h[a*s.k:][:s.k]
		var hx, hy float64
		for j, b := range own {
			hx += float64(float64(h[b]) * float64(x[j]))
			hy += float64(float64(h[b]) * float64(y[j]))
		}
		xi, yi, gi := float64(x[i]), float64(y[i]), float64(gradient[a])
		e.costs[0] += float64(hx * xi)
		e.costs[1] += float64(hy * yi)
		e.cost += float64(hx * yi)
		e.gain[0] += float64(gi * xi)
		e.gain[1] += float64(gi * yi)
	}
	return e
}

func (s *solver) move(own []int, unit []float32, units float32, gradient []float32) {
	if units == 0 {
		return
	}
	for i, a := range own {
		step := float32(units * unit[i])
		for b, v := range s.f.h[a*s.k:][:s.k] {
			gradient[b] -= float32(step * v)
		}
	}
}
