package arch

import (
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
)

// quantile returns the number below which a standard normal variable is with probability p, from 0
// to below 1. The integral of the density takes the middle of each step.
func quantile(p float64) float64 {
	if p < 0.5 {
		return -quantile(1 - p)
	}
	const step = 1.0 / 4096
	for x, sum := 0.0, 0.5; ; x += step {
		middle := x + step/2
		part := float64(step*detmath.Exp(float64(middle*middle)/-2)) / math.Sqrt(2*math.Pi)
		if sum+part >= p || x > 8 {
			return x + float64(step*((p-sum)/part))
		}
		sum += part
	}
}
