package tune

import (
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// factors are stored numbers, scales or gains, each of them its first value times 1 plus a trained
// parameter, rounded to the dtype of the file. The gradient passes the rounding unchanged.
type factors struct {
	base  []float32 // the first values
	value []float32 // the values now, numbers of dtype
	dtype packing.ScaleDtype
	// smallest is the least magnitude that the file can hold; 0 without a bound.
	smallest float32
	// The file stores value - minus. minus is 1 for norms that multiply by 1 + gain, else 0.
	minus float32
	by    *trained
	per   int // consecutive values that share a parameter
	// still reports values that stay; nil: none do.
	still []bool
}

// newFactors makes factors of values with a parameter for each per of them.
func newFactors(base []float32, dtype packing.ScaleDtype, smallest float32, per int, rate float64) *factors {
	f := &factors{base: base, value: make([]float32, len(base)), dtype: dtype, smallest: smallest, per: per}
	copy(f.value, base)
	if rate > 0 {
		f.by = newTrained((len(base)+per-1)/per, rate)
	}
	return f
}

// add adds d loss / d value i to the gradient.
func (f *factors) add(i int, gradient float32) {
	if f.by != nil && (f.still == nil || !f.still[i]) {
		f.by.grad[i/f.per] += float32(gradient * f.base[i])
	}
}

// refresh computes the values from .. to from the parameters. A value that the file cannot hold
// keeps its first value.
func (f *factors) refresh(from, to int) {
	if f.by == nil {
		return
	}
	for i := from; i < to; i++ {
		d := f.by.x[i/f.per]
		if d == 0 || f.still != nil && f.still[i] {
			f.value[i] = f.base[i]
			continue
		}
		v := f.dtype.Round(float32(float32(f.base[i]*(1+d))-f.minus)) + f.minus
		if size := floats.Abs(v); !floats.Finite(v) || size < f.smallest || size > f.dtype.Max() {
			v = f.base[i]
		}
		f.value[i] = v
	}
}
