package generate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func newTestSampler(t testing.TB, o Sampling, banned ...int32) *sampler {
	t.Helper()
	s, err := newSampler(o, banned)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// logitsOf returns the logits of tokens with these probabilities.
func logitsOf(p ...float64) []float32 {
	l := make([]float32, len(p))
	for i := range p {
		l[i] = float32(math.Log(p[i]) + 3)
	}
	return l
}

// TestDistribution draws many tokens and counts them.
func TestDistribution(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      Sampling
		logits []float32
		want   []float64
	}{
		{"temperature 1", Sampling{Temperature: 1}, logitsOf(0.1, 0.2, 0.3, 0.4), []float64{0.1, 0.2, 0.3, 0.4}},
		{"temperature 2", Sampling{Temperature: 2}, logitsOf(0.01, 0.04, 0.16, 0.79), []float64{0.1 / 1.5888, 0.2 / 1.5888, 0.4 / 1.5888, 0.8888 / 1.5888}},
		{"cold", Sampling{Temperature: 1e-30}, logitsOf(0.3, 0.4, 0.3), []float64{0, 1, 0}},
		{"top-k", Sampling{Temperature: 1, TopK: 2}, logitsOf(0.1, 0.2, 0.3, 0.4), []float64{0, 0, 3. / 7, 4. / 7}},
		{"top-k, ties", Sampling{Temperature: 1, TopK: 2}, logitsOf(0.25, 0.25, 0.25, 0.25), []float64{0.5, 0.5, 0, 0}},
		{"top-k above all", Sampling{Temperature: 1, TopK: 9}, logitsOf(0.25, 0.75), []float64{0.25, 0.75}},
		{"top-p", Sampling{Temperature: 1, TopP: 0.6}, logitsOf(0.1, 0.2, 0.3, 0.4), []float64{0, 0, 3. / 7, 4. / 7}},
		{"top-p, ties", Sampling{Temperature: 1, TopP: 0.4}, logitsOf(0.25, 0.25, 0.25, 0.25), []float64{0.5, 0.5, 0, 0}},
		{"top-p small", Sampling{Temperature: 1, TopP: 1e-9}, logitsOf(0.1, 0.2, 0.3, 0.4), []float64{0, 0, 0, 1}},
		{"top-p of what top-k leaves", Sampling{Temperature: 1, TopK: 2, TopP: 0.55}, logitsOf(0.2, 0.2, 0.2, 0.4), []float64{0, 0, 0, 1}},
		{"min-p", Sampling{Temperature: 1, MinP: 0.6}, logitsOf(0.1, 0.2, 0.3, 0.4), []float64{0, 0, 3. / 7, 4. / 7}},
		{"min-p at temperature 1", Sampling{Temperature: 100, MinP: 0.6}, logitsOf(0.1, 0.2, 0.3, 0.4), []float64{0, 0, 0.4993, 0.5007}},
		{"min-p 1", Sampling{Temperature: 1, MinP: 1}, logitsOf(0.1, 0.45, 0.45), []float64{0, 0.5, 0.5}},
		{"impossible tokens", Sampling{Temperature: 1}, []float32{float32(math.Inf(-1)), 0, 0}, []float64{0, 0.5, 0.5}},
		{"huge", Sampling{Temperature: 1, TopP: 0.9}, []float32{math.MaxFloat32, -math.MaxFloat32, math.MaxFloat32}, []float64{0.5, 0, 0.5}},
	} {
		s := newTestSampler(t, c.o)
		const n = 20000
		counts := make([]float64, len(c.logits))
		for range n {
			id, err := s.Choose(slices.Clone(c.logits))
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			counts[id]++
		}
		for id, p := range c.want {
			// Five standard deviations; the seed is always the same.
			if d := math.Abs(counts[id]/n - p); d > 5*math.Sqrt(p*(1-p)/n) {
				t.Errorf("%s: token %d has the share %v, want %v", c.name, id, counts[id]/n, p)
			}
		}
	}
}

// TestRestrictAgainstDefinition compares with all probabilities computed and sorted.
func TestRestrictAgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		o := Sampling{Temperature: 1, TopK: rng.IntN(60), TopP: rng.Float64(), MinP: rng.Float64() * rng.Float64() * rng.Float64()}
		logits := make([]float32, 1+rng.IntN(300))
		for j := range logits {
			logits[j] = float32(rng.NormFloat64() * 3)
		}
		if i%2 == 0 { // ties
			for j := range logits {
				logits[j] = float32(math.Round(float64(logits[j])))
			}
		}
		var all []candidate
		for id, l := range logits {
			all = append(all, candidate{int32(id), l, math.Exp(float64(l))})
		}
		slices.SortFunc(all, before)
		if o.TopK > 0 {
			all = all[:min(o.TopK, len(all))]
		}
		var sum, have float64
		for _, c := range all {
			sum += c.weight
		}
		want := []int32{}
		for _, c := range all {
			if len(want) > 0 && have >= o.TopP*sum || c.weight < o.MinP*all[0].weight {
				break
			}
			have += c.weight
			want = append(want, c.id)
		}
		s := newTestSampler(t, o)
		best, err := likeliest(logits)
		if err != nil {
			t.Fatal(err)
		}
		s.candidates(logits)
		s.restrict(logits[best])
		got := []int32{}
		for _, c := range s.list {
			got = append(got, c.id)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v of %d tokens: %v, want %v", o, len(logits), got, want)
		}
	}
}

func TestGreedy(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		logits []float32
		want   int32
	}{
		{[]float32{1, 3, 2}, 1},
		{[]float32{2, 3, 3}, 1},
		{[]float32{-inf, -5}, 1},
		{[]float32{float32(math.Copysign(0, -1)), 0}, 0},
	} {
		if got, err := newTestSampler(t, Sampling{TopK: 1, Seed: 9}).Choose(slices.Clone(c.logits)); err != nil || got != c.want {
			t.Errorf("%v: token %d, %v, want %d", c.logits, got, err, c.want)
		}
	}
}

func TestRepeatPenalty(t *testing.T) {
	s := newTestSampler(t, Sampling{RepeatPenalty: 2})
	choose := func(want int32, logits ...float32) {
		t.Helper()
		if got, err := s.Choose(logits); err != nil || got != want {
			t.Errorf("token %d, %v, want %d", got, err, want)
		}
	}
	choose(0, 3, 2, 1)
	s.Accept(0, 0) // counts once
	choose(1, 3, 2, 1)
	choose(0, 5, 2, 1)
	choose(1, -1, -1.5, -9)
	s.Accept(make([]int32, repeatLast-1)...)
	s.Accept(1)
	choose(2, 3, 3, 2)
	for range repeatLast {
		s.Accept(1)
	}
	choose(0, 3, 5, 2)
}

// TestSubtractedPenalties: the prompt does not count.
func TestSubtractedPenalties(t *testing.T) {
	for _, c := range []struct {
		o      Sampling
		chosen []int32
		want   []float32
	}{
		{Sampling{PresencePenalty: 0.5}, []int32{1, 1}, []float32{3, 2.5, 3}},
		{Sampling{FrequencyPenalty: 0.5}, []int32{1, 1, 2}, []float32{3, 2, 2.5}},
		{Sampling{PresencePenalty: -1, FrequencyPenalty: 0.25}, []int32{1, 1, 9}, []float32{3, 3.5, 3}},
		// 0 is the prompt
		{Sampling{PresencePenalty: 1, RepeatPenalty: 2}, []int32{1}, []float32{1.5, 0.5, 3}},
	} {
		s := newTestSampler(t, c.o)
		s.Prompt(0)
		s.Accept(c.chosen...)
		logits := []float32{3, 3, 3}
		if _, err := s.Choose(logits); err != nil || !slices.Equal(logits, c.want) {
			t.Errorf("%+v after %v: %v, %v, want %v", c.o, c.chosen, logits, err, c.want)
		}
	}
	for _, o := range []Sampling{{PresencePenalty: 2.1}, {FrequencyPenalty: -3}, {PresencePenalty: math.NaN()}, {FrequencyPenalty: math.Inf(1)}} {
		if err := o.Check(); err == nil {
			t.Errorf("%+v is allowed", o)
		}
	}
}

// TestBadLogits: a NaN or +Inf is an error with any options.
func TestBadLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, o := range []Sampling{{}, DefaultSampling, {Temperature: 1}, {Temperature: 1, TopP: 0.5}} {
		for _, logits := range [][]float32{{nan, 1}, {1, nan, 2}, {nan, nan}, {1, inf}, {-inf, -inf}, {}} {
			if id, err := newTestSampler(t, o).Choose(slices.Clone(logits)); err == nil {
				t.Errorf("%+v, %v: token %d", o, logits, id)
			}
		}
	}
	if id, err := newTestSampler(t, DefaultSampling, 0, 1).Choose([]float32{1, 2}); err == nil {
		t.Errorf("token %d, but all are banned", id)
	}
}

func TestBanned(t *testing.T) {
	s := newTestSampler(t, Sampling{Temperature: 1}, 1, 7)
	for range 100 {
		if id, err := s.Choose([]float32{0, 5, 0}); err != nil || id == 1 {
			t.Fatalf("token %d, %v", id, err)
		}
	}
}

// TestSeed pins the draws: a change would change every text.
func TestSeed(t *testing.T) {
	logits := make([]float32, 1000)
	for i := range logits {
		logits[i] = float32(i*i%97) / 16
	}
	draw := func(seed uint64) (ids []int32) {
		o := DefaultSampling
		o.Seed = seed
		s := newTestSampler(t, o)
		for range 8 {
			id, err := s.Choose(slices.Clone(logits))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
			s.Accept(id)
		}
		return ids
	}
	for seed, want := range map[uint64][]int32{
		0:              {599, 754, 22, 759, 172, 604, 313, 371},
		1:              {992, 308, 759, 798, 798, 371, 599, 948},
		math.MaxUint64: {599, 662, 410, 754, 274, 502, 696, 463},
	} {
		if got := draw(seed); !slices.Equal(got, want) {
			t.Errorf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, o := range []Sampling{
		{Temperature: -1}, {Temperature: nan}, {Temperature: inf}, {TopK: -1}, {TopP: -0.1}, {TopP: 1.1}, {TopP: nan},
		{MinP: -0.1}, {MinP: 2}, {MinP: nan}, {RepeatPenalty: -1}, {RepeatPenalty: nan}, {RepeatPenalty: inf}, {RepeatPenalty: 1e-9},
	} {
		if _, err := newSampler(o, nil); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	for _, o := range []Sampling{{}, DefaultSampling, {Temperature: math.MaxFloat64, TopP: 1, MinP: 1, RepeatPenalty: 1.1}} {
		if err := o.Check(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// BenchmarkChoose has the size of Llama 3's vocabulary.
func BenchmarkChoose(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	logits := make([]float32, 128256)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() * 3)
	}
	for name, o := range map[string]Sampling{
		"greedy": {}, "default": DefaultSampling, "top-p": {Temperature: 0.8, TopP: 0.95}, "min-p": {Temperature: 0.8, MinP: 0.05}, "all": {Temperature: 1},
	} {
		b.Run(name, func(b *testing.B) {
			s := newTestSampler(b, o)
			for b.Loop() {
				if _, err := s.Choose(logits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
