package generate

import (
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/rowmath"
)

// Sampling is the rule for choosing tokens, in llama.cpp's order: the penalties first, then TopK,
// TopP and MinP, all three with probabilities at temperature 1. Then a token is drawn from the rest
// with probabilities at Temperature.
//
// The zero value always takes the most likely token.
type Sampling struct {
	// Temperature divides logits: below 1 likely tokens become likelier. 0 takes the most likely
	// token (the lowest id on ties), whatever the other fields but the penalties are.
	Temperature float64 `json:"temperature"`
	TopK        int     `json:"top_k"` // keeps this many of the likeliest tokens; 0: all
	// TopP keeps the fewest likeliest tokens that have this probability together. 0 or 1: all.
	TopP float64 `json:"top_p"`
	MinP float64 `json:"min_p"` // keeps tokens at least MinP times as likely as the likeliest; 0: all
	// RepeatPenalty divides positive logits of the last 64 tokens, including the prompt's, and
	// multiplies negative logits. 0 or 1: none.
	RepeatPenalty float64 `json:"repeat_penalty"`
	// PresencePenalty is subtracted from the logits of all tokens of the answer so far, and
	// FrequencyPenalty once for each time that a token is in the answer. The prompt does not count,
	// as in vLLM. 0: none.
	PresencePenalty  float64 `json:"presence_penalty"`
	FrequencyPenalty float64 `json:"frequency_penalty"`
	Seed             uint64  `json:"seed"`
}

// DefaultSampling has llama.cpp's defaults, and a fixed seed.
var DefaultSampling = Sampling{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1}

// repeatLast is the number of tokens that RepeatPenalty applies to, as in llama.cpp.
const repeatLast = 64

// A RangeError is a field of Sampling that is out of range.
type RangeError struct {
	Field   string // as a flag of gq run: "top-p"
	Value   any
	Problem string // "is not from 0 to 1"
}

func (e *RangeError) Error() string { return fmt.Sprintf("%s %v %s", e.Field, e.Value, e.Problem) }

// Check returns a *[RangeError] for a field that is out of range.
func (s Sampling) Check() error {
	share := func(v float64) bool { return v >= 0 && v <= 1 }
	switch {
	case !(s.Temperature >= 0 && s.Temperature <= math.MaxFloat64):
		return &RangeError{"temperature", s.Temperature, "is not 0 or more"}
	case s.TopK < 0:
		return &RangeError{"top-k", s.TopK, "is not 0 or more; 0 restricts nothing"}
	case !share(s.TopP):
		return &RangeError{"top-p", s.TopP, "is not from 0 to 1"}
	case !share(s.MinP):
		return &RangeError{"min-p", s.MinP, "is not from 0 to 1"}
	case s.RepeatPenalty != 0 && !(s.RepeatPenalty >= minPenalty && s.RepeatPenalty <= maxPenalty):
		return &RangeError{"repeat-penalty", s.RepeatPenalty, fmt.Sprintf("is not from %v to %v", minPenalty, maxPenalty)}
	case !(math.Abs(s.PresencePenalty) <= maxSubtracted):
		return &RangeError{"presence-penalty", s.PresencePenalty, fmt.Sprintf("is not from -%v to %v", maxSubtracted, maxSubtracted)}
	case !(math.Abs(s.FrequencyPenalty) <= maxSubtracted):
		return &RangeError{"frequency-penalty", s.FrequencyPenalty, fmt.Sprintf("is not from -%v to %v", maxSubtracted, maxSubtracted)}
	}
	return nil
}

// CheckGiven is Check for numbers that a user wrote. There, 0 is not the default of TopP and
// RepeatPenalty, but a mistake.
func (s Sampling) CheckGiven() error {
	switch {
	case s.TopP == 0:
		return &RangeError{"top-p", s.TopP, "is not above 0; 1 restricts nothing"}
	case s.RepeatPenalty == 0:
		return &RangeError{"repeat-penalty", s.RepeatPenalty, "is not above 0; 1 restricts nothing"}
	}
	return s.Check()
}

// A penalty out of this range can make finite logits infinite.
const minPenalty, maxPenalty = 1e-3, 1e3

// maxSubtracted is OpenAI's limit for PresencePenalty and FrequencyPenalty.
const maxSubtracted = 2.0

// sampler chooses a sequence of tokens.
type sampler struct {
	o      Sampling
	rng    detmath.Source
	banned []int32       // never chosen
	last   []int32       // the last tokens, at most repeatLast
	counts map[int32]int // of the answer's tokens, for PresencePenalty and FrequencyPenalty
	list   []candidate
}

type candidate struct {
	id     int32
	logit  float32
	weight float64 // probability, up to a common factor
}

// before orders candidates from likely to unlikely, ties by id.
func before(a, b candidate) int {
	switch {
	case a.logit > b.logit:
		return -1
	case a.logit < b.logit:
		return 1
	}
	return int(a.id) - int(b.id)
}

// newSampler makes a sampler at the start of a sequence. Banned tokens are never chosen.
func newSampler(o Sampling, banned []int32) (*sampler, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &sampler{o: o, rng: detmath.Source(o.Seed), banned: banned}, nil
}

// Prompt adds tokens that were not chosen to the sequence.
func (s *sampler) Prompt(ids ...int32) {
	s.last = append(s.last, ids...)
	if n := len(s.last) - repeatLast; n > 0 {
		s.last = append(s.last[:0], s.last[n:]...)
	}
}

// Accept adds chosen tokens to the sequence.
func (s *sampler) Accept(ids ...int32) {
	s.Prompt(ids...)
	if s.o.PresencePenalty == 0 && s.o.FrequencyPenalty == 0 {
		return
	}
	if s.counts == nil {
		s.counts = map[int32]int{}
	}
	for _, id := range ids {
		s.counts[id]++
	}
}

// Choose chooses the next token and overwrites logits. A token with a logit of -Inf is never
// chosen; NaN and +Inf are errors.
func (s *sampler) Choose(logits []float32) (int32, error) {
	s.change(logits)
	best, err := likeliest(logits)
	if err != nil || s.o.Temperature == 0 {
		return best, err
	}
	s.candidates(logits)
	s.restrict(logits[best])
	return s.draw(logits[best]), nil
}

func (s *sampler) change(logits []float32) {
	for _, id := range s.banned {
		if int(id) < len(logits) {
			logits[id] = float32(math.Inf(-1))
		}
	}
	s.repeated(logits)
	for id, n := range s.counts {
		if int(id) < len(logits) {
			logits[id] = float32(float64(logits[id]) - s.o.PresencePenalty - float64(float64(n)*s.o.FrequencyPenalty))
		}
	}
}

func (s *sampler) repeated(logits []float32) {
	if s.o.RepeatPenalty == 0 || s.o.RepeatPenalty == 1 {
		return
	}
	penalty := float32(s.o.RepeatPenalty)
	for i, id := range s.last {
		if int(id) >= len(logits) || slices.Contains(s.last[:i], id) {
			continue
		}
		if l := logits[id]; l > 0 {
			logits[id] = l / penalty
		} else {
			logits[id] = l * penalty
		}
	}
}

func likeliest(logits []float32) (int32, error) {
	best := -1
	for id, l := range logits {
		if l != l || l > math.MaxFloat32 {
			return 0, fmt.Errorf("the logit of token %d is %v: numbers in the model have become too large", id, l)
		}
		if l >= -math.MaxFloat32 && (best < 0 || l > logits[best]) {
			best = id
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("no token has a finite logit")
	}
	return int32(best), nil
}

// candidates fills s.list with TopK tokens in order, or with all tokens by id.
func (s *sampler) candidates(logits []float32) {
	if s.list = s.list[:0]; s.o.TopK > 0 {
		s.list = likeliestN(s.list, logits, s.o.TopK)
		return
	}
	for id, l := range logits {
		if l >= -math.MaxFloat32 {
			s.list = append(s.list, candidate{id: int32(id), logit: l})
		}
	}
}

// likeliestN appends the n likeliest tokens in order to the empty list.
func likeliestN(list []candidate, logits []float32, n int) []candidate {
	if n == 0 {
		return list
	}
	// Tokens at least as likely as the n-th so far are collected, and sorted when there are twice as
	// many as needed.
	floor := float32(-math.MaxFloat32)
	for id, l := range logits {
		if l < floor {
			continue
		}
		list = append(list, candidate{id: int32(id), logit: l})
		if len(list)/2 >= n {
			slices.SortFunc(list, before)
			list = list[:n]
			floor = list[n-1].logit
		}
	}
	slices.SortFunc(list, before)
	return list[:min(len(list), n)]
}

func (s *sampler) restrict(largest float32) {
	topP := s.o.TopP != 0 && s.o.TopP < 1
	if !topP && s.o.MinP == 0 {
		return
	}
	var sum float64
	for i := range s.list {
		c := &s.list[i]
		c.weight = detmath.ExpNarrow(float64(c.logit) - float64(largest))
		sum += c.weight
	}
	floor := s.o.MinP // the likeliest token has weight 1
	if topP {
		// The tokens below this weight have less than half of the probability that TopP may leave out, so
		// they need no sorting.
		floor = max(floor, float64(1-s.o.TopP)*sum/float64(2*len(s.list)))
	}
	s.list = slices.DeleteFunc(s.list, func(c candidate) bool { return c.weight < floor })
	if !topP {
		return
	}
	slices.SortFunc(s.list, before)
	want, have := float64(s.o.TopP*sum), 0.0
	for i, c := range s.list {
		if have += c.weight; have >= want {
			s.list = s.list[:i+1]
			return
		}
	}
}

func (s *sampler) draw(largest float32) int32 {
	var sum float64
	for i := range s.list {
		c := &s.list[i]
		c.weight = detmath.ExpNarrow((float64(c.logit) - float64(largest)) / s.o.Temperature)
		sum += c.weight
	}
	at := float64(s.rng.Float() * sum)
	for _, c := range s.list {
		if at < c.weight {
			return c.id
		}
		at -= c.weight
	}
	// Because of rounding: the last token with a positive weight.
	for _, c := range slices.Backward(s.list) {
		if c.weight > 0 {
			return c.id
		}
	}
	return s.list[0].id // not reached: the likeliest token has weight 1
}

// scorer computes logarithms of probabilities. Their bits are the same on every CPU.
type scorer struct {
	logits []float32
	exp    []float64
	shift  float64 // logarithm of the sum of e^logit
	best   []candidate
}

// set reads logits, and finds the n likeliest tokens. A NaN or +Inf is an error.
func (s *scorer) set(logits []float32, n int) error {
	best, err := likeliest(logits)
	if err != nil {
		return err
	}
	s.logits = append(s.logits[:0], logits...) // the sampler changes logits
	sum := rowmath.Sets.Chosen().ExpSum(buffer.Grow(&s.exp, len(logits)), logits, logits[best])
	s.shift = float64(logits[best]) + detmath.Log(sum)
	s.best = likeliestN(s.best[:0], logits, n)
	return nil
}

func (s *scorer) logprob(id int32) float64 { return float64(s.logits[id]) - s.shift }

func (s *scorer) top(t *tokenizer.Tokenizer) []Alternative {
	list := make([]Alternative, len(s.best))
	for i, c := range s.best {
		list[i] = Alternative{c.id, t.Bytes(c.id), s.logprob(c.id)}
	}
	return list
}
