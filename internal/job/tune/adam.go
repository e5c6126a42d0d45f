package tune

import (
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
)

// trained is a vector of parameters with their gradients and Adam's moments.
type trained struct {
	x, grad, m, v []float32
	best          []float32 // x of the best step
	rate          float64   // learning rate after the warm-up
}

func newTrained(n int, rate float64) *trained {
	all := make([]float32, 5*n)
	t := &trained{rate: rate}
	for i, p := range []*[]float32{&t.x, &t.grad, &t.m, &t.v, &t.best} {
		*p = all[i*n : (i+1)*n : (i+1)*n]
	}
	return t
}

// StateBytes is the memory of a trained number: value, best value, gradient and two moments.
const StateBytes = 20

// The constants of Adam. The gradients of scales are small, so epsilon must be small, too.
const (
	beta1, beta2 = .9, .99
	epsilon      = 1e-12
)

// schedule is step's part, from 0, of the learning rate: a linear warm-up, then a cosine to floor.
func schedule(step, steps int) float64 {
	const floor = .05
	warm := min(warmUp, steps)
	if step < warm {
		return float64(step+1) / float64(warm)
	}
	at := float64(step-warm) / float64(max(1, steps-warm))
	return floor + float64((1-floor)*.5*(1+detmath.Cos(float64(math.Pi*at))))
}

const warmUp = 10

// corrections are the bias corrections of Adam's moments at step, from 0.
func corrections(step int) (first, second float64) {
	a, b := 1.0, 1.0
	for range step + 1 {
		a, b = a*beta1, b*beta2
	}
	return 1 - a, 1 - b
}

// update moves the parameters from .. to against their gradient and clears the gradient.
func (t *trained) update(from, to int, rate, first, second float64) {
	for i := from; i < to; i++ {
		g := float64(t.grad[i])
		m := float64(beta1*float64(t.m[i])) + float64((1-beta1)*g)
		v := float64(beta2*float64(t.v[i])) + float64((1-beta2)*float64(g*g))
		t.m[i], t.v[i], t.grad[i] = float32(m), float32(v), 0
		if m != 0 {
			t.x[i] -= float32(float64(rate*(m/first)) / (math.Sqrt(v/second) + epsilon))
		}
	}
}
