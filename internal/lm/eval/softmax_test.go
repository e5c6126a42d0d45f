package eval

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPrediction compares with the textbook formulas in float64.
func TestPrediction(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, vocab := range []int{1, 3, 5, 6, 500} {
		draw := func() []float32 {
			x := make([]float32, vocab)
			for i := range x {
				x[i] = float32(rng.NormFloat64() * 5)
			}
			return x
		}
		var p, q prediction
		p.set(draw())
		q.set(draw())
		probs := func(x []float32) []float64 {
			sum := 0.0
			out := make([]float64, len(x))
			for i, v := range x {
				out[i] = math.Exp(float64(v))
				sum += out[i]
			}
			for i := range out {
				out[i] /= sum
			}
			return out
		}
		a, b := probs(p.logits), probs(q.logits)
		kl := 0.0
		for i := range a {
			kl += a[i] * math.Log(a[i]/b[i])
			if got := p.logProb(int32(i)); math.Abs(got-math.Log(a[i])) > 1e-10 { // the error of ExpNarrow
				t.Errorf("vocabulary %d, token %d: log probability %v, want %v", vocab, i, got, math.Log(a[i]))
			}
		}
		if got := divergence(&p, &q); math.Abs(got-kl) > 1e-9 {
			t.Errorf("vocabulary %d: divergence %v, want %v", vocab, got, kl)
		}
		if got := divergence(&p, &p); got != 0 {
			t.Errorf("vocabulary %d: divergence of a distribution from itself is %v", vocab, got)
		}
		order := make([]int32, vocab)
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(i, j int32) int {
			return cmp.Compare(p.logits[j], p.logits[i])
		})
		n := min(vocab, topN)
		if !slices.Equal(p.top[:n], order[:n]) {
			t.Errorf("vocabulary %d: likeliest %v, want %v", vocab, p.top, order[:n])
		}
		if got := overlap(&p, &p); got != n {
			t.Errorf("vocabulary %d: %d of %d likeliest in common with itself", vocab, got, n)
		}
	}
}

func TestPredictionTies(t *testing.T) {
	var p prediction
	p.set([]float32{1, 2, 2, 1, 2, 0, 1})
	if want := [topN]int32{1, 2, 4, 0, 3}; p.top != want {
		t.Errorf("likeliest %v, want %v: the lower token first", p.top, want)
	}
}

func TestPredictionNonFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		var p prediction
		if p.set([]float32{1, float32(bad), 2}); p.finite {
			t.Errorf("a logit of %v passes", bad)
		}
	}
}

func TestDescribe(t *testing.T) {
	v := make([]float64, 1000)
	for i := range v {
		v[i] = float64((i*7919)%1000 + 1) // 1 to 1000, shuffled
	}
	d := describe(v, nil)
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"mean", d.Mean, 500.5}, {"median", d.Median, 500}, {"p1", d.P1, 10}, {"p90", d.P90, 900}, {"p99.9", d.P999, 999},
		{"min", d.Min, 1}, {"max", d.Max, 1000}, {"std err", float64(d.StdErr), math.Sqrt(1000*1001/12.) / math.Sqrt(1000)},
		{"rms", d.RMS, math.Sqrt(1001 * 2001 / 6.)},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s is %v, want %v", c.name, c.got, c.want)
		}
	}
	if d := describe(nil, nil); d != (Distribution{}) {
		t.Errorf("nothing gives %+v", d)
	}
}

func TestHistogram(t *testing.T) {
	h := histogram([]float64{0, 1, 1.5, 2, 3, 9}, []float64{1, 2, 3})
	if want := []int64{1, 2, 1, 2}; !slices.Equal(h.Counts, want) {
		t.Errorf("counts %v, want %v", h.Counts, want)
	}
}
