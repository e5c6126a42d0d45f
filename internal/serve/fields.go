package serve

import (
	"encoding/json"
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
	sampling      generate.Sampling
	ignoreEOS     bool
	cacheKey      string
	streamOptions streamOptions
}

// newCommon has the values of missing fields: the defaults of `gq run`, except for a random seed.
func newCommon() common {
	c := common{sampling: generate.DefaultSampling}
	c.sampling.Seed = rand.Uint64N(maxRandomSeed)
	return c
}

func (c *common) object() object {
	s := &c.sampling
	return object{
		fields: map[string]any{
			"model": &c.model, "stream": &c.stream, "stream_options": &c.streamOptions, "n": &c.n,
			"max_tokens": &c.maxTokens, "stop": &c.stop, "seed": &s.Seed, "temperature": &s.Temperature,
			"top_p": &s.TopP, "top_k": &s.TopK, "min_p": &s.MinP, "repetition_penalty": &s.RepeatPenalty,
			"presence_penalty": &s.PresencePenalty, "frequency_penalty": &s.FrequencyPenalty, "ignore_eos": &c.ignoreEOS, "prompt_cache_key": &c.cacheKey,
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
