// Package testrows makes rows of weights that never change, for tests.
package testrows

import (
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
)

// Gaussian returns n normally distributed numbers (Box and Muller).
func Gaussian(seed uint64, n int) []float32 {
	r := detmath.Source(seed)
	x := make([]float32, n+n%2)
	for i := 0; i < len(x); i += 2 {
		size, angle := math.Sqrt(-2*math.Log(Uniform(&r))), 2*math.Pi*Uniform(&r)
		x[i], x[i+1] = float32(size*math.Cos(angle)), float32(size*math.Sin(angle))
	}
	return x[:n]
}

// Uniform returns a number u in 0 < u < 1.
func Uniform(r *detmath.Source) float64 { return (float64(r.Next()>>11) + 0.5) * 0x1p-53 }
