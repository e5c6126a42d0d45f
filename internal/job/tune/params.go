package tune

import (
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
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

// divergence is KL(teacher || student) of a position.
func divergence(student, teacher []float32, p, q []float64) (kl float64) {
	kl = softmax(q, student) - softmax(p, teacher)
	for i, v := range p {
		kl += float64(v * (float64(teacher[i]) - float64(student[i])))
	}
	return kl
}

// softmax sets dst to the probabilities of logits, and returns the logarithm of their sum before
// the division.
func softmax(dst []float64, logits []float32) float64 {
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
	return float64(top) + detmath.Log(sum)
}

// confine keeps positions from .. to within half a step of the codes, so that codes can come back.
func (t *matrix) confine(from, to int) {
	lo, hi := float32(t.lo)-.5, float32(t.hi)+.5
	for i := from; i < to; i++ {
		t.steps.x[i] = max(lo, min(t.steps.x[i], hi))
	}
}

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

// NumberBytes is the memory of a trained number, at most.
func NumberBytes(k quantizer.Tune) int64 {
	if k == quantizer.TuneBlocks {
		return softBytes(vec.SoftChoices)
	}
	return StateBytes
}

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

// start returns the codes of a matrix before training: the codes that calibration chose, or the
// codes that writing the plan would choose.
func (j *job) start(m plan.Matrix) (*rounding.Codes, error) {
	c := j.codes
	if rows := c.Chosen(m); rows != nil {
		codes, err := rounding.LoadCodes(m.Scheme.Shape(m.Rows, m.Cols), rows.ReadRow)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", m.Name(), err)
		}
		return codes, nil
	}
	codes, importance := rounding.NewCodes(m.Scheme.Shape(m.Rows, m.Cols)), c.ImportanceOf(m)
	const piece = 32
	err := j.pool.Pieces(m.Rows, piece, func(_, from, to int) error {
		return j.round(m, codes, importance, from, to)
	})
	if err != nil {
		return nil, fmt.Errorf("%q: %w", m.Name(), err)
	}
	return codes, nil
}

// round chooses the codes of rows as the writing of the plan does.
func (j *job) round(m plan.Matrix, codes *rounding.Codes, importance *plan.Importance, from, to int) error {
	q, err := m.Rounder(m.Scheme.Algorithm)
	if err != nil {
		return err
	}
	w := make([]float32, m.Cols)
	for r := from; r < to; r++ {
		if err := j.plan.ReadRows(w, m, r, 1); err != nil {
			return err
		}
		q.Weigh(importance.Row(r), false)
		if err := q.Quantize(codes.Row(r), w); err != nil {
			return err
		}
	}
	return nil
}
