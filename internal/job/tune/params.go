package tune

import (
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/packing"
)

// factors are stored numbers, scales or gains, each its first value times 1 plus a trained
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

// newFactors makes factors of values with a parameter for every per values.
func newFactors(base []float32, dtype packing.ScaleDtype, smallest float32, per int, rate float64) *factors {
	f := &factors{base: base, value: make([]float32, len(base)), dtype: dtype, smallest: smallest, per: per}
	copy(f.value, base)
	if rate > 0 {
		f.by = newTrained((len(base)+per-1)/per, rate)
	}
	return f
}

func (f *factors) add(i int, gradient float32) {
	if f.by != nil && (f.still == nil || !f.still[i]) {
		f.by.grad[i/f.per] += float32(gradient * f.base[i])
	}
}

// refresh computes values from .. to from the parameters. Values that the file cannot hold stay.
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

// klGradient replaces the student's logits of a position by the gradient of share times KL(teacher
// || student): share (softmax(student) - softmax(teacher)). The teacher's logits stay.
func klGradient(student, teacher []float32, share float64, p, q []float64) {
	softmax(p, teacher)
	softmax(q, student)
	for i := range student {
		student[i] = float32(float64(share * (q[i] - p[i])))
	}
}

// softmax sets dst to the probabilities of logits.
func softmax(dst []float64, logits []float32) {
	top := logits[0]
	for _, v := range logits {
		top = max(top, v)
	}
	sum := 0.0
	for i, v := range logits {
		e := detmath.ExpNarrow(float64(v) - float64(top))
		dst[i] = e
		sum += e
	}
	for i := range dst {
		dst[i] /= sum
	}
}

// roundCode is the code at a position: the nearest integer, within the range of codes.
func roundCode(x float32, lo, hi int) int {
	return min(max(int(math.RoundToEven(float64(max(-300, min(x, 300))))), lo), hi)
}

// confine keeps positions from .. to within half a step of the codes, so that codes can come back.
func (t *matrix) confine(from, to int) {
	lo, hi := float32(t.lo)-.5, float32(t.hi)+.5
	for i := from; i < to; i++ {
		t.steps.x[i] = max(lo, min(t.steps.x[i], hi))
	}
}
