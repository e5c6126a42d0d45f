package tune

import (
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/vec"
)

// The constants of relaxed codes were chosen with a model that docs/QUALITY.md does not measure.
const (
	softRate = .05
	// softReach is how far a position begins from its code towards the checkpoint's weight, and
	// softWidth is the standard deviation of the choices about the position.
	softReach, softWidth = .2, .35
	// The temperature falls geometrically from hot to cold in softShare of the steps.
	hot, cold, softShare = .5, .05, .85
	// Gradients are multiplied by softSlope over the temperature: gradients of choices with small
	// weights fall to 1e-24 of the loss, and their squares would be subnormal numbers.
	softSlope = 0x1p50
)

// soft relaxes the codes of a matrix: a code is the mean of its choices, weighted by the softmax of
// the logits x over a temperature. Lists are filled up to whole blocks, see vec.StepSoft.
type soft struct {
	n           int       // choices of a code, at most vec.SoftChoices
	least       []int8    // [Rows][Cols], the least choice of a code
	value       []float32 // [Rows][Cols], relaxed codes
	grad        []float32 // [Rows][Cols], of the relaxed codes
	x, m, v     []float32 // [blocks][n][vec.SoftLanes]: logits, and their moments
	temperature float64
}

// at is the index of the logit of choice c of code i.
func (s *soft) at(i, c int) int {
	return i/vec.SoftLanes*vec.SoftLanes*s.n + c*vec.SoftLanes + i%vec.SoftLanes
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
	n, size := choices(t.Scheme.Bits), vec.Groups(len(t.codes), vec.SoftLanes)*vec.SoftLanes
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
				s.x[s.at(i, c)] = x
			}
		}
	})
	t.soft = s
	s.step(0, size, 0, 1, 1, hot) // computes the relaxed codes
	return err
}

// step moves the logits of the codes from .. to, whole blocks, against their gradient by a step of
// Adam, clears the gradient, and computes the codes at the next temperature. first and second are
// the corrections of the moments.
func (s *soft) step(from, to int, rate, first, second, next float64) {
	colder := 1 / s.temperature
	step := vec.SoftStep{Colder: float32(colder), Next: float32(1 / next), Slope: float32(softSlope * colder), Rate: float32(rate / first), Second: float32(1 / second)}
	n := s.n
	vec.StepSoft(&step, n, s.value[from:to], s.grad[from:to], s.least[from:to], s.x[from*n:to*n], s.m[from*n:to*n], s.v[from*n:to*n])
}

// harden sets the codes from .. to to their likeliest choices.
func (s *soft) harden(codes []int8, from, to int) {
	for i := from; i < to; i++ {
		best, top := 0, float32(math.Inf(-1))
		for c := range s.n {
			if v := s.x[s.at(i, c)]; v > top {
				best, top = c, v
			}
		}
		codes[i] = s.least[i] + int8(best)
	}
}
