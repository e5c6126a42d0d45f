package arch

import (
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
)

// quantile returns the number below which a standard normal variable is with probability p, from 0
// to 1: the bisection of an integral by Simpson's rule.
func quantile(p float64) float64 {
	below := func(x float64) float64 {
		const steps = 256
		h, sum := x/steps, 0.0
		for i := range steps + 1 {
			weight := float64(2 + i%2*2)
			if i == 0 || i == steps {
				weight = 1
			}
			at := float64(h * float64(i))
			sum += float64(weight * detmath.Exp(float64(at*at)/-2))
		}
		return 0.5 + float64(sum*h)/(3*math.Sqrt(2*math.Pi))
	}
	lo, hi := -8.0, 8.0
	for range 60 {
		if mid := (lo + hi) / 2; below(mid) < p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
