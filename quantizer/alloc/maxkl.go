package alloc

import (
	"context"
	"fmt"
	"sort"

	"github.com/lowbit-go/gq/internal/detmath"
)

// Evaluation is an allocation that was measured.
type Evaluation struct {
	BitsPerWeight float64 `json:"bits_per_weight"`
	PredictedKL   float64 `json:"predicted_kl"`
	KL            float64 `json:"kl"`

	bytes int64 // of decisions
}

// evaluations is how many whole models MaxKL measures, and closeEnough which share of the target ends the search earlier.
const (
	evaluations = 6
	closeEnough = .95
)

// MaxKL looks for the smallest allocation whose measured divergence is at most the target. measure quantizes the model
// with an allocation and measures it; the one that is returned was measured, and is the last of the evaluations whose KL
// meets the target.
func (p *Probed) MaxKL(ctx context.Context, target float64, measure func(ctx context.Context, a *Allocation) (float64, error)) (*Allocation, []Evaluation, error) {
	least, most := p.Bytes()
	s := search{p: p, target: target, low: least - 1, high: most + 1, ratio: 1.1}
	var best *Allocation
	var list []Evaluation
	for i := 0; ; i++ {
		bytes := s.next()
		if best == nil && i == evaluations-1 {
			bytes = most
		}
		a, err := p.Budget(bytes)
		if err != nil {
			return nil, list, err
		}
		e := Evaluation{BitsPerWeight: a.BitsPerWeight, PredictedKL: a.PredictedKL, bytes: a.PayloadBytes - p.fixed}
		if e.KL, err = measure(ctx, a); err != nil {
			return nil, list, err
		}
		list = append(list, e)
		met := e.KL <= target
		if met {
			best = a
		}
		s.learn(e, bytes, met)
		switch {
		case !met && e.bytes >= s.largest():
			return nil, list, &TargetError{fmt.Sprintf("a KL divergence of %g: %d bits everywhere have %.3g", target, p.job.MaxBits, e.KL)}
		case best != nil && (met && e.KL >= closeEnough*target || s.high-s.low <= 1 || i >= evaluations-1 || e.bytes <= least):
			return best, list, nil
		}
	}
}

// search narrows a range of bytes: low is too few, high enough.
type search struct {
	p             *Probed
	target        float64
	low, high     int64
	lowKL, highKL float64 // measured; 0: not yet
	ratio         float64 // of measured to predicted KL, as far as is known
}

func (s *search) largest() int64 {
	_, most := s.p.Bytes()
	return most
}

// next gives the bytes to try.
func (s *search) next() int64 {
	if s.lowKL > 0 && s.highKL > 0 {
		// The logarithm of the divergence falls about linearly with bytes.
		share := (detmath.Log(s.lowKL) - detmath.Log(s.target*.98)) / (detmath.Log(s.lowKL) - detmath.Log(s.highKL))
		share = min(max(share, .05), .95)
		return min(max(s.low+int64(share*float64(s.high-s.low)), s.low+1), s.high-1)
	}
	n := int(s.high - s.low - 1) // the fewest bytes between whose prediction is good enough
	i := sort.Search(n, func(i int) bool {
		chosen, ok := choose(s.p.Decisions, s.low+1+int64(i))
		return ok && float64(s.p.predicted(chosen)*s.ratio) <= s.target*.98
	})
	return s.low + 1 + int64(min(i, n-1))
}

func (p *Probed) predicted(chosen []int) (kl float64) {
	for i, d := range p.Decisions {
		kl += d.Options[chosen[i]].KL
	}
	return kl
}

func (s *search) learn(e Evaluation, budget int64, met bool) {
	if met {
		s.high, s.highKL = min(s.high, e.bytes), e.KL
	} else {
		s.low, s.lowKL = max(s.low, min(budget, s.high-1)), e.KL
	}
	if e.PredictedKL > 0 {
		s.ratio = e.KL / e.PredictedKL
		if !met {
			s.ratio = float64(s.ratio * 1.05)
		}
	}
}
