package serve

import (
	"encoding/json"
	"errors"
	"math/rand/v2"

	"github.com/lowbit-go/gq/model/generate"
)

// common are the fields that chat completions and completions share.
type common struct {
	model         string
	stream        bool
	n             *int
	maxTokens     *int
	stop          stops
	seed          *uint64
	temperature   *float64
	topP          *float64
	topK          *int
	minP          *float64
	repetition    *float64
	presence      *float64
	frequency     *float64
	ignoreEOS     bool
	cacheKey      string
	streamOptions streamOptions
}

func (c *common) object() object {
	return object{
		fields: map[string]any{
			"model": &c.model, "stream": &c.stream, "stream_options": &c.streamOptions, "n": &c.n,
			"max_tokens": &c.maxTokens, "stop": &c.stop, "seed": &c.seed, "temperature": &c.temperature,
			"top_p": &c.topP, "top_k": &c.topK, "min_p": &c.minP, "repetition_penalty": &c.repetition,
			"presence_penalty": &c.presence, "frequency_penalty": &c.frequency, "ignore_eos": &c.ignoreEOS, "prompt_cache_key": &c.cacheKey,
		},
		// These say who asks, or what a service of many machines keeps.
		ignored: []string{"user", "metadata", "store", "safety_identifier", "prompt_cache_retention"},
		refused: map[string][]string{
			"logit_bias":   {"{}"},
			"service_tier": {`"auto"`, `"default"`},
		},
	}
}

// streamOptions are the fields of stream_options.
type streamOptions struct {
	includeUsage bool
}

func (s *streamOptions) decode(at string, raw json.RawMessage) error {
	return object{
		fields: map[string]any{"include_usage": &s.includeUsage},
		// padding hides lengths from observers of encrypted traffic
		ignored: []string{"include_obfuscation"},
	}.read(at, raw)
}

// Limits of stop strings.
const (
	maxStops     = 32
	maxStopBytes = 1 << 10
)

// stops is the field stop, a string or a list of strings.
type stops []string

func (s *stops) decode(at string, raw json.RawMessage) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*s = stops{one}
	} else if json.Unmarshal(raw, (*[]string)(s)) != nil {
		return expected(at, "a string or a list of strings", raw)
	}
	if len(*s) > maxStops {
		return invalid(at, "stop has %d strings, at most %d are allowed", len(*s), maxStops)
	}
	for _, text := range *s {
		if text == "" || len(text) > maxStopBytes {
			return invalid(at, "a stop string has %d bytes, 1 to %d are allowed", len(text), maxStopBytes)
		}
	}
	return nil
}

// maxRandomSeed keeps seeds exact in JavaScript with its numbers of 53 bits.
const maxRandomSeed = 1 << 53

// options turns the fields into options of the engine. Missing fields have the defaults of `gq
// run`, except for a random seed.
func (c *common) options() (generate.Options, error) {
	o := generate.Options{Sampling: generate.DefaultSampling, Stop: c.stop, IgnoreEOS: c.ignoreEOS}
	s := &o.Sampling
	if s.Seed = rand.Uint64N(maxRandomSeed); c.seed != nil {
		s.Seed = *c.seed
	}
	if c.topK != nil {
		s.TopK = *c.topK
		if err := checkSampling("top_k", s); err != nil {
			return o, err
		}
	}
	for _, f := range []struct {
		name  string
		value *float64
		into  *float64
	}{
		{"temperature", c.temperature, &s.Temperature},
		{"top_p", c.topP, &s.TopP},
		{"min_p", c.minP, &s.MinP},
		{"repetition_penalty", c.repetition, &s.RepeatPenalty},
		{"presence_penalty", c.presence, &s.PresencePenalty},
		{"frequency_penalty", c.frequency, &s.FrequencyPenalty},
	} {
		if f.value == nil {
			continue
		}
		*f.into = *f.value
		if err := checkSampling(f.name, s); err != nil {
			return o, err
		}
	}
	return o, nil
}

// checkSampling refuses the field that was set last, if out of range.
func checkSampling(name string, s *generate.Sampling) error {
	e, ok := errors.AsType[*generate.RangeError](s.CheckGiven())
	if !ok {
		return nil
	}
	return invalid(name, "%s %v %s", name, e.Value, e.Problem)
}

// choices returns the number of answers per prompt.
func (c *common) choices(limit int) (int, error) {
	if c.n == nil {
		return 1, nil
	}
	if *c.n < 1 || *c.n > limit {
		return 0, invalid("n", "n %d is not from 1 to %d", *c.n, limit)
	}
	return *c.n, nil
}
