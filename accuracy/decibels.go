package accuracy

import (
	"fmt"
	"math"
	"strconv"

	"github.com/lowbit-go/gq/internal/detmath"
)

// Decibels is a signal-to-noise ratio: 10 log10 of the quotient of two sums of squares. Without
// noise the ratio is +Inf, in JSON null. Noise without a signal is -300, the minimum.
type Decibels float64

// Ratio returns the ratio of the sums of squares of a signal and of its noise.
func Ratio(signal, noise float64) Decibels {
	const least = -300
	switch {
	case noise == 0:
		return Decibels(math.Inf(1))
	case signal == 0:
		return least
	}
	return Decibels(max(float64(10*detmath.Log10(signal/noise)), least))
}

// Exact reports whether there is no noise.
func (d Decibels) Exact() bool { return math.IsInf(float64(d), 1) }

// String formats d as "21.35 dB", or "exact".
func (d Decibels) String() string {
	if d.Exact() {
		return "exact"
	}
	return fmt.Sprintf("%.2f dB", float64(d))
}

func (d Decibels) MarshalJSON() ([]byte, error) {
	v := float64(d)
	switch {
	case d.Exact():
		return []byte("null"), nil
	case math.IsNaN(v) || math.IsInf(v, -1):
		return nil, fmt.Errorf("%v is not a ratio in decibels", v)
	}
	return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
}

func (d *Decibels) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*d = Ratio(1, 0)
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	*d = Decibels(v)
	return err
}
