package accuracy

import (
	"fmt"
	"math"
	"strconv"

	"github.com/lowbit-go/gq/internal/detmath"
)

// Decibels is a ratio of signal to noise: 10 log10 of the quotient of their sums of squares. It is +Inf where there is
// no noise, which JSON has as null, and -300 at least: that stands for noise without a signal.
type Decibels float64

// Exact stands for no noise at all.
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

// String gives "21.35 dB", or "exact".
func (d Decibels) String() string {
	if math.IsInf(float64(d), 1) {
		return "exact"
	}
	return fmt.Sprintf("%.2f dB", float64(d))
}

// MarshalJSON gives a number, or null for Exact.
func (d Decibels) MarshalJSON() ([]byte, error) {
	v := float64(d)
	switch {
	case math.IsInf(v, 1):
		return []byte("null"), nil
	case math.IsNaN(v) || math.IsInf(v, -1):
		return nil, fmt.Errorf("%v are no decibels", v)
	}
	return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
}

// UnmarshalJSON reads what MarshalJSON gives.
func (d *Decibels) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*d = Exact
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	*d = Decibels(v)
	return err
}

// cosineOf is the cosine of the angle between two vectors, given their product and squares: 1 for two of zeros, 0 for
// one.
func cosineOf(dot, a, b float64) float64 {
	switch {
	case a == 0 && b == 0:
		return 1
	case a == 0 || b == 0:
		return 0
	}
	// Of equal vectors the quotient may be a little above 1.
	return max(-1, min(dot/float64(math.Sqrt(a)*math.Sqrt(b)), 1))
}
