package generate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestLogprobs compares with the textbook formula.
func TestLogprobs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s scorer
	for _, n := range []int{1, 5, 300} {
		logits := make([]float32, n)
		sum := 0.0
		for i := range logits {
			logits[i] = float32(rng.NormFloat64() * 4)
			sum += math.Exp(float64(logits[i]))
		}
		if err := s.set(logits, 3); err != nil {
			t.Fatal(err)
		}
		for i, l := range logits {
			if d := s.logprob(int32(i)) - (float64(l) - math.Log(sum)); math.Abs(d) > 1e-10 {
				t.Errorf("%d of %d: off by %v", i, n, d)
			}
		}
		if len(s.best) != min(n, 3) {
			t.Errorf("%d of 3 alternatives", len(s.best))
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		if err := s.set([]float32{1, float32(bad)}, 1); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

// TestAlternatives: they are ordered and belong to the model's own logits, whatever the sampling.
func TestAlternatives(t *testing.T) {
	g := open(t, books, 1)
	o := Options{Prompt: "The old man said", MaxTokens: 20, Logprobs: true, TopLogprobs: 5, EchoLogprobs: true, Sampling: Sampling{RepeatPenalty: 5, PresencePenalty: 2}}
	list, r, err := steps(t.Context(), g.Run, o)
	if err != nil || len(list) != len(r.PromptIDs)+20 {
		t.Fatalf("%d steps, %v", len(list), err)
	}
	text, below := "", 0
	for i, s := range list {
		if s.Prompt != (i < len(r.PromptIDs)) {
			t.Fatalf("step %d: %+v", i, s)
		}
		if i == 0 {
			if !math.IsNaN(s.Logprob) || s.Top != nil {
				t.Errorf("the first token has a probability: %+v", s)
			}
			continue
		}
		if !s.Prompt {
			text += s.Text
		}
		if len(s.Top) != 5 || s.Logprob > s.Top[0].Logprob || !(s.Top[0].Logprob < 0) {
			t.Fatalf("step %d: %+v", i, s)
		}
		for j := range 4 {
			if s.Top[j].Logprob < s.Top[j+1].Logprob {
				t.Errorf("step %d: %+v", i, s)
			}
		}
		if s.ID != s.Top[0].ID {
			below++
		}
	}
	if text != r.Text || below == 0 {
		t.Errorf("%q of %q; %d unlikely tokens", text, r.Text, below)
	}
	// The same tokens as a prompt have the same probabilities.
	o.PromptIDs, o.MaxTokens = append(r.PromptIDs, r.IDs...), -1
	again, _, err := steps(t.Context(), g.Run, o)
	if err != nil || len(again) != len(list) {
		t.Fatalf("%d steps, %v", len(again), err)
	}
	for i := range list {
		if math.Float64bits(again[i].Logprob) != math.Float64bits(list[i].Logprob) {
			t.Errorf("step %d: %v, then %v", i, list[i].Logprob, again[i].Logprob)
		}
	}
}
