package alloc

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/job/rounding"
)

// The bits and the group of probes.
const (
	probeBits  = 3
	probeGroup = 64
)

// SampledRows is the greatest number of rows of a matrix that options are compared on.
const SampledRows = 64

type tensorErrors struct {
	// Options and Probe are the errors with the scheme of each option and of the probe, estimated
	// from a sample of rows: sums of squares, each row and column weighted with its importance.
	Options []float64
	Probe   float64
}

func (j *Job) errors(ctx context.Context, list []*Decision, im *importances) ([]*tensorErrors, error) {
	found := make([]*tensorErrors, len(list))
	return found, cpu.Parallel(ctx, cpu.Threads(j.Options.Threads), len(list), func() func(i int) error {
		return func(i int) (err error) {
			found[i], err = j.errorsOf(list[i], im)
			j.progress(1)
			return err
		}
	})
}

func (j *Job) errorsOf(d *Decision, im *importances) (*tensorErrors, error) {
	e := &tensorErrors{Options: make([]float64, len(d.Options))}
	for _, name := range d.Tensors {
		if err := j.tensor(e, d, name, im); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
	}
	return e, nil
}

type roundedRows struct {
	*rounding.Rounder
	weighs bool // the rounder takes weights of columns
	sum    *float64
	// coarse is how much the error of coarse activations counts, 0 for a type with others.
	coarse float64
}

// solvedShare is the part of the weights' predicted divergence that is left if calibration chooses
// the codes of a GGUF file: .3 to .6 on books3.7M at 3 to 5 bits; for a tied embedding in Q5_1, .42
// on SmolLM2-135M, .55 on stories260K and .8 on books1.3M. Activations keep all of theirs. The file
// with a Q4_K_M's bytes then has .83 times the divergence.
const solvedShare = .5

func (j *Job) tensor(e *tensorErrors, d *Decision, name string, im *importances) error {
	w, err := j.weights(name)
	if err != nil {
		return err
	}
	rounder := func(s rounding.Scheme, floatZeros bool, sum *float64) (roundedRows, error) {
		r, err := rounding.NewRounder(s, w.Cols)
		if err != nil {
			return roundedRows{}, err
		}
		if floatZeros {
			r.UseFloatZeros()
		}
		r.Recover(w.Tensor.Precision())
		own := roundedRows{Rounder: r, weighs: s.Algorithm.Calibrated(), sum: sum}
		if s.Type != 0 && s.Type.BlockWeights() == coarseBlock {
			if own.coarse = 1; d.solved {
				own.coarse = 1 / solvedShare
			}
		}
		return own, nil
	}
	var sampled []roundedRows
	for i, o := range d.Options {
		r, err := rounder(o.scheme, o.floatZeros, &e.Options[i])
		if err != nil {
			return err
		}
		sampled = append(sampled, r)
	}
	probe, err := rounder(d.probeScheme(), false, &e.Probe)
	if err != nil {
		return err
	}
	sampled = append(sampled, probe)
	for slice, linears := range d.replaced(w, name) {
		var list []*importance
		for _, n := range linears {
			if i := im.linears[n]; i != nil {
				list = append(list, i)
			}
		}
		if d.Embedding {
			list = append(list, im.embedding)
		}
		if len(list) == 0 && (w.Slices > 1 || strings.Contains(name, ".experts.")) {
			continue // an expert that no token reached
		}
		columns := im.columns(linears)
		for _, q := range sampled {
			if q.weighs {
				q.Weigh(columns, false)
			}
		}
		r := rows{w, slice * w.Rows, list}
		if err := r.errors(sampled, r.sample()); err != nil {
			return err
		}
	}
	return nil
}

type rows struct {
	weights     *safetensors.Weights
	first       int           // row of the slice
	importances []*importance // none: all rows and columns are equal
}

// sample returns how often each row counts: once in a small matrix. Otherwise up to SampledRows
// rows are drawn in steps of equal importance; each stands for rows of that importance in sum.
func (r rows) sample() []float64 {
	n := r.weights.Rows
	if n <= SampledRows {
		return ones(n)
	}
	importance := make([]float64, n)
	if len(r.importances) == 0 {
		importance = ones(n)
	}
	for _, im := range r.importances {
		cols := 0.0
		for _, v := range im.cols {
			cols += v
		}
		for i, v := range im.rows {
			importance[i] += float64(v * cols)
		}
	}
	step := 0.0
	for _, v := range importance {
		step += v
	}
	step /= SampledRows
	counts := make([]float64, n)
	next, sum := step/2, 0.0
	for i, v := range importance {
		for sum += v; next < sum; next += step {
			counts[i] += step / v
		}
	}
	return counts
}

func ones(n int) []float64 { return slices.Repeat([]float64{1}, n) }

// errors adds the errors of the rows, weighted with their counts.
func (r rows) errors(list []roundedRows, counts []float64) error {
	w := r.weights
	x, y, weights := make([]float32, w.Cols), make([]float32, w.Cols), ones(w.Cols)
	coarse := make([]float64, w.Cols)
	for row, count := range counts {
		if count == 0 {
			continue
		}
		if err := w.Read(x, r.first+row, 1); err != nil {
			return err
		}
		if len(r.importances) > 0 {
			clear(weights)
			clear(coarse)
		}
		for _, im := range r.importances {
			for k, v := range im.cols {
				weights[k] += float64(im.rows[row] * v)
			}
			for k, v := range im.coarse {
				coarse[k] += float64(im.rows[row] * v)
			}
		}
		for _, q := range list {
			if err := q.Round(y, x); err != nil {
				return err
			}
			sum := 0.0
			for k, v := range x {
				diff := float64(v) - float64(y[k])
				sum += float64(float64(diff*diff) * weights[k])
				if q.coarse > 0 {
					sum += float64(float64(float64(y[k])*float64(y[k])) * float64(coarse[k]*q.coarse))
				}
			}
			*q.sum += float64(sum * count)
		}
	}
	return nil
}

// predict finds the divergences of the options and their hull.
func (d *Decision) predict(e *tensorErrors) {
	for i := range d.Options {
		o := &d.Options[i]
		if o.KL = d.ProbeKL; e.Probe > 0 {
			o.KL = float64(d.ProbeKL * (e.Options[i] / e.Probe))
		}
		if d.solved {
			o.KL *= solvedShare
		}
	}
	d.hull = lowerHull(d.Options)
}

// probeScheme is the scheme of the option with the nearest bits, then the nearest group, with the
// bits and the group of probes as far as the scheme allows.
func (d *Decision) probeScheme() rounding.Scheme {
	apart := func(a, b int) int { return max(a-b, b-a) }
	s := slices.MinFunc(d.Options, func(a, b Option) int {
		return cmp.Or(cmp.Compare(apart(a.Bits, probeBits), apart(b.Bits, probeBits)), cmp.Compare(apart(a.Group, probeGroup), apart(b.Group, probeGroup)))
	}).scheme
	s.Bits, s.Group = probeBits, probeGroup
	// Half-step ends at 2 bits, and the blocks of a type may not divide a row.
	if s.Mapping == gqf.MappingHalfStep || s.Type != 0 {
		s.Type = 0
		s.Mapping = gqf.MappingFullRange
	}
	s.Fractions = s.Fractions && s.FractionalZeroPoints()
	return s
}

type Evaluation struct {
	BitsPerWeight float64 `json:"bits_per_weight"`
	PredictedKL   float64 `json:"predicted_kl"`
	KL            float64 `json:"kl"`
	// Bound is KL with a margin for other text, 0 for Best.
	Bound float64 `json:"kl_bound,omitempty"`

	bytes     int64   // of the decisions
	weightsKL float64 // PredictedKL without the activations' part
}

type Measured struct {
	KL float64
	// Bound is the divergence that MaxKL compares with its target: KL plus a margin for other text.
	Bound float64
	// ActivationKL is the part of int8 activations in KL. The weights' bits hardly matter, so a single
	// measurement may serve all allocations.
	ActivationKL float64
	// Tokens are the divergences at all tokens of the text, to compare allocations.
	Tokens []float64
}

// MaxKL measures at most MostEvaluations models. The search ends when a model reaches closeEnough
// of the target, or when a model that is smaller by at most 1/nearEnough misses the target: the
// divergence does not fall evenly from allocation to allocation, and each may need a calibration.
const (
	MostEvaluations = 6
	closeEnough     = .95
	nearEnough      = 200
)

// MaxKL searches for the smallest allocation with a measured bound of at most the target.
// measure quantizes the model with an allocation and measures the result. The returned allocation
// is the last evaluation that meets the target.
func (p *Sensitivities) MaxKL(ctx context.Context, target float64, measure func(ctx context.Context, a *Allocation) (Measured, error)) (*Allocation, []Evaluation, error) {
	least, most := p.Bytes()
	s := search{p: p, target: target, low: least - 1, high: most + 1, ratio: 1.1}
	var best *Allocation
	var list []Evaluation
	for i := 0; ; i++ {
		bytes := s.next()
		if best == nil && i == MostEvaluations-1 {
			bytes = most
		}
		a, err := p.Budget(bytes)
		if err != nil {
			return nil, list, err
		}
		e := Evaluation{BitsPerWeight: a.BitsPerWeight, bytes: a.PayloadBytes - p.fixed, weightsKL: a.PredictedKL}
		m, err := measure(ctx, a)
		if err != nil {
			return nil, list, err
		}
		a.measured(m)
		e.PredictedKL, e.KL, e.Bound = a.PredictedKL, m.KL, m.Bound
		list = append(list, e)
		met := e.Bound <= target
		if met {
			best = a
		}
		s.learn(e, bytes, met)
		_, most := p.Bytes()
		switch {
		case !met && e.bytes >= most:
			return nil, list, &TargetError{fmt.Sprintf("a KL divergence of %g: the file with %d bits everywhere has %.6f: ask for more, or for another algorithm or --quality", target, p.job.MaxBits, math.Ceil(e.Bound*1e6)/1e6)}
		case best != nil && (met && e.Bound >= closeEnough*target || s.high-s.low <= max(1, s.high/nearEnough) || i >= MostEvaluations-1 || e.bytes <= least):
			return best, list, nil
		}
	}
}

// search narrows a range of bytes: low is too few, high is enough.
type search struct {
	p             *Sensitivities
	target        float64
	low, high     int64
	lowKL, highKL float64 // bounds; 0: not yet
	ratio         float64 // bound over the weights' predicted KL, so far
}

func (s *search) next() int64 {
	if s.lowKL > 0 && s.highKL > 0 {
		// The logarithm of the divergence falls about linearly with the bytes.
		share := (detmath.Log(s.lowKL) - detmath.Log(s.target*.98)) / (detmath.Log(s.lowKL) - detmath.Log(s.highKL))
		share = min(max(share, .05), .95)
		return min(max(s.low+int64(share*float64(s.high-s.low)), s.low+1), s.high-1)
	}
	n := int(s.high - s.low - 1) // the fewest bytes with a small enough predicted KL
	i := sort.Search(n, func(i int) bool {
		chosen, ok := choose(s.p.Decisions, s.low+1+int64(i))
		return ok && float64(predicted(s.p.Decisions, chosen)*s.ratio) <= s.target*.98
	})
	return s.low + 1 + int64(min(i, n-1))
}

func (s *search) learn(e Evaluation, budget int64, met bool) {
	if met {
		s.high, s.highKL = min(s.high, e.bytes), e.Bound
	} else {
		s.low, s.lowKL = max(s.low, min(budget, s.high-1)), e.Bound
	}
	if e.weightsKL > 0 {
		s.ratio = e.Bound / e.weightsKL
		if !met {
			s.ratio = float64(s.ratio * 1.05)
		}
	}
}
