package accuracy

import (
	"fmt"
	"math"
	"strconv"

	"github.com/lowbit-go/gq/internal/detmath"
)

// Decibels is a signal-to-noise ratio: 10 log10 of the quotient of two sums of squares. Without
// noise it is +Inf, which JSON spells null. Noise without a signal is -300, the minimum.
type Decibels float64

// Exact is the ratio without noise.
var Exact = Decibels(math.Inf(1))

const leastDecibels = -300

func ratioOf(signal, noise float64) Decibels {
	switch {
	case noise == 0:
		return Exact
	case signal == 0:
		return leastDecibels
	}
	return Decibels(max(float64(10*detmath.Log10(signal/noise)), leastDecibels))
}

// String formats d as "21.35 dB", or "exact".
func (d Decibels) String() string {
	if math.IsInf(float64(d), 1) {
		return "exact"
	}
	return fmt.Sprintf("%.2f dB", float64(d))
}

// MarshalJSON writes a number, or null for Exact.
func (d Decibels) MarshalJSON() ([]byte, error) {
	v := float64(d)
	switch {
	case math.IsInf(v, 1):
		return []byte("null"), nil
	case math.IsNaN(v) || math.IsInf(v, -1):
		return nil, fmt.Errorf("%v is not a ratio in decibels", v)
	}
	return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
}

// UnmarshalJSON reads the output of MarshalJSON.
func (d *Decibels) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*d = Exact
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	*d = Decibels(v)
	return err
}

// cosineOf is the cosine of the angle between two vectors, from their dot product and sums of
// squares. It is 1 if both vectors are zero, and 0 if one is.
func cosineOf(dot, a, b float64) float64 {
	switch {
	case a == 0 && b == 0:
		return 1
	case a == 0 || b == 0:
		return 0
	}
	// Rounding may take the quotient of equal vectors slightly above 1.
	return max(-1, min(dot/float64(math.Sqrt(a)*math.Sqrt(b)), 1))
}
