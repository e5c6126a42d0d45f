package tune

import (
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
)

// The constants of relaxed codes were chosen with a model that docs/QUALITY.md does not measure.
const (
	softRate = .05
	// softReach is how far a position begins from its code towards the checkpoint's weight, and
	// softWidth is the standard deviation of the choices about the position.
	softReach, softWidth = .2, .35
	// The temperature falls geometrically from hot to cold in softShare of the steps.
	hot, cold, softShare = .5, .05, .85
	// Choices with small weights have small gradients, and need a smaller epsilon than scales.
	softEpsilon = 1e-20
	// Weights below e^negligible are 0.
	negligible = -40
	mostSoft   = 4
)

// soft relaxes the codes of a matrix: a code is the mean of its choices, weighted by the softmax of
// the logits x over a temperature. The choices of a code are consecutive.
type soft struct {
	n           int       // choices of a code, at most mostSoft
	least       []int8    // [Rows][Cols], the least choice of a code
	value       []float32 // [Rows][Cols], relaxed codes
	grad        []float32 // [Rows][Cols], of the relaxed codes
	x, m, v     []float32 // [Rows][Cols][n]: logits, and their moments
	temperature float64
}

// softBytes is the memory of a relaxed code with n choices, see soft.
func softBytes(n int) int64 { return 1 + 2*4 + 3*4*int64(n) }

// choices is the number of choices of a code: all codes up to 2 bits, else the code of calibration
// and its neighbors.
func choices(bits int) int {
	if bits <= 2 {
		return 1 << bits
	}
	return 3
}

// temperature is the temperature at step, from 0.
func temperature(step, steps int) float64 {
	at := float64(step) / float64(max(1, steps-1)) / softShare
	return float64(hot * detmath.Pow(cold/hot, min(at, 1)))
}

// soften relaxes the codes, unless they are apart. weights reads rows of the checkpoint.
func (t *matrix) soften(weights func(dst []float32, first, rows int) error) error {
	if t.apart() {
		return nil
	}
	n, size := choices(t.Scheme.Bits), len(t.codes)
	s := &soft{n: n, least: make([]int8, size), temperature: hot}
	s.value, s.grad = make([]float32, size), make([]float32, size)
	s.x, s.m, s.v = make([]float32, size*n), make([]float32, size*n), make([]float32, size*n)
	var buf []float32
	err := t.eachRow(weights, func(row int, w []float32) {
		u := buffer.Grow(&buf, t.Cols)
		t.place(row, w, u, softReach)
		for k, at := range u {
			i := row*t.Cols + k
			least := min(max(int(t.codes[i])-1, t.lo), t.hi+1-n)
			s.least[i] = int8(least)
			still := t.still[row*t.groups+k/t.width]
			for c := range n {
				d := float32(least+c) - at
				x := float32(d*d) * (-1 / (2 * softWidth * softWidth))
				if still { // for ever at the code
					x = float32(-1000 * max(d, -d))
				}
				s.x[i*n+c] = x
			}
		}
		s.refresh(row*t.Cols, (row+1)*t.Cols)
	})
	t.soft = s
	return err
}

// weigh sets p to the softmax of the logits of a code and returns the code's mean choice, counted
// from the least choice.
func (s *soft) weigh(p, x []float32, colder float64) (mean float64) {
	top := x[0]
	for _, v := range x[1:] {
		top = max(top, v)
	}
	sum := 0.0
	for c, v := range x {
		e := 1.0
		if v != top {
			e = 0
			if d := float64((float64(v) - float64(top)) * colder); d > negligible {
				e = detmath.ExpNarrow(d)
			}
		}
		p[c] = float32(e)
		sum += e
		mean += float64(float64(c) * e)
	}
	for c := range p {
		p[c] = float32(float64(p[c]) / sum)
	}
	return mean / sum
}

// refresh computes the relaxed codes from .. to from their logits.
func (s *soft) refresh(from, to int) {
	var p [mostSoft]float32
	colder := 1 / s.temperature
	for i := from; i < to; i++ {
		s.value[i] = float32(float64(s.least[i]) + s.weigh(p[:s.n], s.x[i*s.n:][:s.n], colder))
	}
}

// update moves the logits of the codes from .. to against their gradient by a step of Adam, and
// clears the gradient. first and second are the corrections of the moments.
func (s *soft) update(from, to int, rate, first, second float64) {
	var p [mostSoft]float32
	colder := 1 / s.temperature
	// Few divisions: they take most of the time.
	rate, second = rate/first, 1/second
	for i := from; i < to; i++ {
		x, m, v := s.x[i*s.n:][:s.n], s.m[i*s.n:][:s.n], s.v[i*s.n:][:s.n]
		mean := s.weigh(p[:s.n], x, colder)
		grad := float64(float64(s.grad[i]) * colder)
		s.grad[i] = 0
		for c := range x {
			g := float64(float64(grad*float64(p[c])) * (float64(c) - mean))
			a := float64(beta1*float64(m[c])) + float64((1-beta1)*g)
			b := float64(beta2*float64(v[c])) + float64((1-beta2)*float64(g*g))
			m[c], v[c] = float32(a), float32(b)
			if a != 0 {
				x[c] -= float32(float64(rate*a) / (math.Sqrt(float64(b*second)) + softEpsilon))
			}
		}
	}
}

// harden sets the codes from .. to to their likeliest choices.
func (s *soft) harden(codes []int8, from, to int) {
	for i := from; i < to; i++ {
		best, top := 0, float32(math.Inf(-1))
		for c, v := range s.x[i*s.n:][:s.n] {
			if v > top {
				best, top = c, v
			}
		}
		codes[i] = s.least[i] + int8(best)
	}
}
