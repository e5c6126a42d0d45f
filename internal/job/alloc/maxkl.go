package alloc

import (
	"context"
	"fmt"
	"math"
	"sort"

	"github.com/lowbit-go/gq/internal/detmath"
)

type Evaluation struct {
	BitsPerWeight float64 `json:"bits_per_weight"`
	PredictedKL   float64 `json:"predicted_kl"`
	KL            float64 `json:"kl"`

	bytes     int64   // of the decisions
	weightsKL float64 // PredictedKL without the activations' part
}

type Measured struct {
	KL float64
	// ActivationKL is the part of int8 activations in KL. The weights' bits hardly matter, so a single
	// measurement may serve all allocations.
	ActivationKL float64
}

// MaxKL measures at most MostEvaluations models. The search ends when a model reaches closeEnough
// of the target, or when a model that is smaller by at most 1/nearEnough misses the target: the
// divergence does not fall evenly from allocation to allocation, and each may need a calibration.
const (
	MostEvaluations = 6
	closeEnough     = .95
	nearEnough      = 200
)

// MaxKL searches for the smallest allocation with a measured divergence of at most the target.
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
		e.PredictedKL, e.KL = a.PredictedKL, m.KL
		list = append(list, e)
		met := e.KL <= target
		if met {
			best = a
		}
		s.learn(e, bytes, met)
		switch {
		case !met && e.bytes >= s.largest():
			return nil, list, &TargetError{fmt.Sprintf("a KL divergence of %g: the file with %d bits everywhere has %.6f: ask for more, or for another algorithm or --quality", target, p.job.MaxBits, math.Ceil(e.KL*1e6)/1e6)}
		case best != nil && (met && e.KL >= closeEnough*target || s.high-s.low <= max(1, s.high/nearEnough) || i >= MostEvaluations-1 || e.bytes <= least):
			return best, list, nil
		}
	}
}

// search narrows a range of bytes: low is too few, high is enough.
type search struct {
	p             *Sensitivities
	target        float64
	low, high     int64
	lowKL, highKL float64 // measured; 0: not yet
	ratio         float64 // measured KL over the weights' predicted KL, so far
}

func (s *search) largest() int64 {
	_, most := s.p.Bytes()
	return most
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
		s.high, s.highKL = min(s.high, e.bytes), e.KL
	} else {
		s.low, s.lowKL = max(s.low, min(budget, s.high-1)), e.KL
	}
	if e.weightsKL > 0 {
		s.ratio = e.KL / e.weightsKL
		if !met {
			s.ratio = float64(s.ratio * 1.05)
		}
	}
}
