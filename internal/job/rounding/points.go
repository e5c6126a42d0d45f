package rounding

import (
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/floats"
)

// Points are the codes of a type with a lattice (gguf.TensorType.Lattice): the magnitudes of each 4
// or 8 weights are a point of the lattice.
type Points struct {
	n      int     // weights of a point
	Width  int     // weights that are rounded together: n, or 8 if their signs depend on each other
	values []int8  // of a coordinate, ascending
	next   []int16 // [nodes][values]: the tree of the points' coordinates; 0: no point
	even   bool    // the number of negative signs in 8 weights is even
	// steps are what a search tries for the largest weight of a group, in units of the scale.
	steps []float32
}

// UnitMost is the greatest number of weights that are rounded together.
const UnitMost = 8

func newPoints(t gguf.TensorType, even bool, steps []float32) *Points {
	lattice := t.Lattice()
	p := &Points{n: len(lattice[0]), Width: len(lattice[0]), even: even, steps: steps}
	if even {
		p.Width = UnitMost
	}
	for _, point := range lattice {
		p.values = append(p.values, point...)
	}
	slices.Sort(p.values)
	p.values = slices.Compact(p.values)
	m := len(p.values)
	p.next = make([]int16, m)
	for _, point := range lattice {
		node := 0
		for _, q := range point {
			at := &p.next[node*m+slices.Index(p.values, q)]
			if *at == 0 {
				*at = int16(len(p.next) / m)
				p.next = append(p.next, make([]int16, m)...)
			}
			node = int(*at)
		}
	}
	return p
}

// Points returns the points of a type with a lattice, else nil.
func (s Scheme) Points() *Points {
	if g := blockGrids[s.Type]; g != nil {
		return g.points
	}
	return nil
}

// nearest is a search for the point of the least error. Beyond the least possible error of each
// coordinate, whatever the point, an error is an excess.
type nearest struct {
	*Points
	excess [UnitMost][8]float32 // of each coordinate's values
	order  [UnitMost][8]uint8   // the values in order of their excess
	flip   [UnitMost][8]float32 // the cost of the sign that the weight does not have
	least  float32              // cost of a flip
	path   [UnitMost]uint8      // values from the root of the tree on
	found  [UnitMost]uint8
	best   float32
}

// Round sets codes to the codes with the least sum of w (x - code scale)^2, for Width weights.
func (p *Points) Round(codes []int8, x, w []float32, scale float32) {
	var s nearest
	s.Points = p
	odd := false
	for _, v := range x[:p.Width] {
		odd = odd != (v < 0)
	}
	// A point of 8 weights flips the sign of one; of two points of 4 weights, one point does.
	var other [2][UnitMost]int8
	var cost float32
	flipped := 0
	flips := p.even && odd
	for at := 0; at < p.Width; at += p.n {
		s.measure(x[at:], w[at:], scale, flips)
		own := other[at/p.n][:]
		if flips {
			s.search(float32(math.Inf(1)), s.least)
			s.write(own, x[at:], true)
			if p.n == p.Width {
				break
			}
		}
		with := s.best
		s.search(0, 0)
		s.write(codes[at:], x[at:], false)
		if more := with - s.best; at == 0 || more < cost {
			cost, flipped = more, at
		}
	}
	if flips {
		copy(codes[flipped:][:p.n], other[flipped/p.n][:])
	}
}

// measure sets the errors of the coordinates of n weights, and the costs of flips if signs flip.
func (s *nearest) measure(x, w []float32, scale float32, flips bool) {
	m := len(s.values)
	s.least = float32(math.Inf(1))
	for i, v := range x[:s.n] {
		v = floats.Abs(v)
		e := &s.excess[i]
		most := 0 // values up to the weight
		for j, value := range s.values {
			size := float32(float32(value) * scale)
			d := v - size
			e[j] = float32(float32(d*d) * w[i])
			if flips {
				s.flip[i][j] = float32(float32(4*w[i]) * float32(v*size))
			}
			if d >= 0 {
				most = j
			}
		}
		s.least = min(s.least, s.flip[i][0])
		low, high := most, most+1
		for j := range m {
			if high == m || low >= 0 && e[low] <= e[high] {
				s.order[i][j] = uint8(low)
				low--
			} else {
				s.order[i][j] = uint8(high)
				high++
			}
		}
		first := e[s.order[i][0]]
		for j := range m {
			e[j] -= first
		}
	}
}

// search finds the point of the least error. If a sign flips, flip is infinite, least a bound.
func (s *nearest) search(flip, least float32) {
	s.best = float32(math.Inf(1))
	s.visit(0, 0, 0, flip, least)
}

// visit tries the points below a node, where sum is the excess of the coordinates above, flip is
// the least cost of a flip among them, and least bounds the cost of a flip from below.
func (s *nearest) visit(depth, node int, sum, flip, least float32) {
	m := len(s.values)
	next := s.next[node*m:][:m]
	for _, v := range s.order[depth][:m] {
		e := sum + s.excess[depth][v]
		if e+least >= s.best {
			return
		}
		child := next[v]
		if child == 0 {
			continue
		}
		s.path[depth] = v
		f := min(flip, s.flip[depth][v])
		if depth+1 < s.n {
			s.visit(depth+1, int(child), e, f, least)
		} else if e += f; !(e >= s.best) {
			s.best, s.found = e, s.path
		}
	}
}

// write sets codes to the point that was found, with the signs of x. If a sign flips, the sign that
// costs the least does.
func (s *nearest) write(codes []int8, x []float32, flips bool) {
	at := 0
	for i, v := range x[:s.n] {
		if codes[i] = s.values[s.found[i]]; v < 0 {
			codes[i] = -codes[i]
		}
		if s.flip[i][s.found[i]] < s.flip[at][s.found[at]] {
			at = i
		}
	}
	if flips {
		codes[at] = -codes[at]
	}
}
