package serve

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/model/generate"
)

// A prompt is a text, token ids, or messages that encode turns into token ids.
type prompt struct {
	text     string
	ids      []int32
	messages messages
}

// A job is what a request asks of a model.
type job struct {
	model        *Model
	prompts      []prompt
	n            int              // answers per prompt
	options      generate.Options // of all prompts
	echo         bool             // the answer's text starts with the prompt
	stream       bool
	includeUsage bool
	format       format
	id           string
	created      int64
	begun        time.Time // when the request was read
	most         int       // Limits.Held
	held         int       // tokens and alternatives in the steps of all choices
}

// A format writes answers in the way of an endpoint. The results are elements of "choices".
type format interface {
	prefix() string           // of ids
	object(chunk bool) string // the type of the answer, or of an event
	whole(c *choice) any
	first(c *choice) any // the first event of a choice; nil: none
	part(c *choice, text string, steps []generate.Step) any
	last(c *choice, steps []generate.Step) any
}

// newJob makes a job with the fields that all endpoints share.
func (s *Server) newJob(c *common, f format) (*job, error) {
	m, err := s.model(c.model)
	if err != nil {
		return nil, err
	}
	j := &job{model: m, stream: c.stream, includeUsage: c.streamOptions.includeUsage, format: f, id: f.prefix() + randomID(), created: time.Now().Unix(), most: s.limits.Held}
	if j.includeUsage && !j.stream {
		return nil, invalid("stream_options", "stream_options needs stream: set it to true")
	}
	if j.n = 1; c.n != nil {
		if j.n = *c.n; j.n < 1 || j.n > s.limits.Choices {
			return nil, invalid("n", "n %d is not from 1 to %d", j.n, s.limits.Choices)
		}
	}
	if e, wrong := errors.AsType[*generate.RangeError](c.sampling.CheckGiven()); wrong {
		name := strings.ReplaceAll(e.Field, "-", "_")
		if name == "repeat_penalty" {
			name = "repetition_penalty"
		}
		return nil, invalid(name, "%s %v %s", name, e.Value, e.Problem)
	}
	j.options = generate.Options{Sampling: c.sampling, Stop: c.stop, IgnoreEOS: c.ignoreEOS}
	// Clients that share keys and values can find out each other's prompts. Only requests with the
	// same cache key share, or all requests without a cache key that have sent the API key. Any other
	// request shares with itself only.
	if sum := sha256.Sum256([]byte(c.cacheKey)); c.cacheKey != "" {
		j.options.Scope = string(sum[:]) // a key may be long
	} else if s.guard.key == nil {
		j.options.Scope = j.id
	}
	// Without max_tokens the answer ends where the context does.
	j.options.Context = m.Engine.Context()
	if j.options.MaxTokens = j.options.Context; c.maxTokens != nil {
		j.options.MaxTokens = min(*c.maxTokens, j.options.Context)
	}
	return j, nil
}

// check holds the prompts to the limits.
func (s *Server) check(j *job) error {
	if all := len(j.prompts) * j.n; all > s.limits.Choices {
		return invalid("prompt", "%d prompts with %d answers each are %d answers, the limit of this server is %d", len(j.prompts), j.n, all, s.limits.Choices)
	}
	for i, p := range j.prompts {
		n := int64(len(p.text))
		for _, m := range p.messages {
			n += int64(len(m.Role) + len(m.Content) + len(m.Name))
		}
		if n > s.limits.Prompt {
			return &apiError{status: http.StatusBadRequest, code: codeContext, message: fmt.Sprintf("prompt %d has %d bytes, the limit of this server is %d", i, n, s.limits.Prompt)}
		}
		for _, id := range p.ids {
			if size := j.model.Generator.Model().VocabSize(); id < 0 || int(id) >= size {
				return invalid("prompt", "token %d of prompt %d is not in the model's vocabulary of %d", id, i, size)
			}
		}
	}
	return nil
}

func (j *job) encode(ctx context.Context) error {
	for i := range j.prompts {
		p := &j.prompts[i]
		if p.messages == nil {
			continue
		}
		var err error
		if p.ids, err = j.model.Template.Encode(ctx, j.model.Generator.Tokenizer(), p.messages, true); err != nil {
			return err
		}
		if len(p.ids) == 0 {
			return generate.ErrNoTokens
		}
	}
	return nil
}

// choice is an answer: the state while the answer is computed, and the result.
type choice struct {
	index  int
	text   strings.Builder
	steps  []generate.Step // with logprobs: steps that were not sent yet
	offset int             // in characters, of the next token in steps
	prompt *tokenizer.Stream
	begun  bool          // an event was sent
	waited time.Duration // until the engine took the choice
	result *generate.Result
}

// held is what a step counts for Limits.Held.
func held(s *generate.Step) int { return 1 + len(s.Top) }

// hold keeps a step of a choice until the step is written.
func (j *job) hold(c *choice, s generate.Step) error {
	c.steps = append(c.steps, s)
	if j.held += held(&s); j.held > j.most {
		return invalid("logprobs", "more than %d log probabilities have to be held back, the limit of this server: ask for fewer answers, tokens or alternatives", j.most)
	}
	return nil
}

func (j *job) release(c *choice) []generate.Step {
	steps := c.steps
	c.steps = nil
	for i := range steps {
		j.held -= held(&steps[i])
	}
	return steps
}

// piece is the text that a step adds.
func (c *choice) piece(s *generate.Step) string {
	if s.Prompt {
		return c.prompt.Next(s.ID)
	}
	return s.Text
}

// finish is OpenAI's word for why the answer ended.
func (c *choice) finish() *string {
	word := "length"
	switch c.result.Stopped {
	case generate.EndOfText, generate.StopString:
		word = "stop"
	}
	return &word
}

// usage counts tokens. A prompt with several answers counts once.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// timings are an extension of OpenAI's answers. With several answers, seconds of prefill and of
// decoding are sums, and the first token is the earliest of all.
type timings struct {
	Seed           uint64  `json:"seed"` // of the first answer to each prompt; then consecutive seeds
	FirstToken     float64 `json:"first_token_seconds"`
	Prefill        float64 `json:"prefill_seconds"`
	Decode         float64 `json:"decode_seconds"`
	Total          float64 `json:"total_seconds"` // since the request was read
	PrefillTokens  float64 `json:"prefill_tokens_per_second"`
	DecodeTokens   float64 `json:"decode_tokens_per_second"`
	prefillCounted int
	decodeCounted  int
}

func (j *job) measure(choices []*choice, took time.Duration) (u usage, t timings) {
	t.Seed, t.Total = j.options.Sampling.Seed, took.Seconds()
	for i, c := range choices {
		r := c.result
		if i%j.n == 0 {
			u.Prompt += len(r.PromptIDs)
			u.Details.Cached += r.CachedTokens
		}
		u.Completion += len(r.IDs)
		t.Prefill += r.PrefillSeconds
		t.Decode += r.DecodeSeconds
		t.prefillCounted += len(r.PromptIDs) - r.CachedTokens
		t.decodeCounted += max(0, len(r.IDs)-1) // the prefill yields the first token
		if first := c.waited.Seconds() + r.FirstTokenSeconds; len(r.IDs) > 0 && (t.FirstToken == 0 || first < t.FirstToken) {
			t.FirstToken = first
		}
	}
	u.Total = u.Prompt + u.Completion
	if t.Prefill > 0 {
		t.PrefillTokens = float64(t.prefillCounted) / t.Prefill
	}
	if t.Decode > 0 {
		t.DecodeTokens = float64(t.decodeCounted) / t.Decode
	}
	return u, t
}
