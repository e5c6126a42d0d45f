package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/model/generate"
)

// A testCase is a request with the answer that it must get.
type testCase struct {
	path   string
	body   []byte
	stream bool
	chat   bool
	text   string // the answer
	finish string // its finish_reason
	tokens int
}

// caseCount is how many different requests there are. Answers of a model alone are computed one
// after the other, so that there cannot be very many.
const caseCount = 256

// makeCases makes requests of all kinds, always the same ones.
func makeCases(ctx context.Context, model string) ([]testCase, error) {
	g, err := generate.Open(model, generate.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	template, err := chat.Open(g.Asset)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(17, 64))
	var cases []testCase
	for range caseCount {
		q := newRequest(random)
		c, err := q.answer(ctx, g, template)
		if err != nil {
			return nil, err
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// request is the request of a testCase.
type request struct {
	fields   map[string]any // of the body
	messages []chat.Message // of a chat; none: a completion
	options  generate.Options
}

// Prompts begin with parts of one text, so that requests share prefixes.
const opening = "It was a dark night, and the old man had lit the lamp of the lighthouse long before the first ship came round the rocks. " +
	"Nobody in the village had seen him for weeks. The fishermen said that he talked to the sea, and the children were afraid of him."

func newRequest(random *rand.Rand) *request {
	words := strings.Fields(opening)
	prompt := strings.Join(words[:1+random.IntN(len(words))], " ")
	if random.IntN(3) == 0 {
		prompt += fmt.Sprintf(" He was %d years old", random.IntN(100))
	}
	q := &request{fields: map[string]any{"prompt_cache_key": "soak"}, options: generate.Options{Sampling: generate.DefaultSampling}}
	if random.IntN(2) == 0 {
		q.options.Prompt = prompt
		q.fields["prompt"] = prompt
	} else {
		q.messages = []chat.Message{{Role: "system", Content: "You tell stories."}, {Role: "user", Content: prompt}}
		q.fields["messages"] = []map[string]string{{"role": "system", "content": "You tell stories."}, {"role": "user", "content": prompt}}
	}
	s := &q.options.Sampling
	s.Seed = random.Uint64N(1 << 53)
	s.Temperature = []float64{0, 0.7, 1, 1.5}[random.IntN(4)]
	q.fields["seed"], q.fields["temperature"] = s.Seed, s.Temperature
	if random.IntN(4) == 0 {
		s.TopK, s.TopP, s.MinP = 20, 0.9, 0.02
		q.fields["top_k"], q.fields["top_p"], q.fields["min_p"] = s.TopK, s.TopP, s.MinP
	}
	if random.IntN(4) == 0 {
		s.RepeatPenalty, s.PresencePenalty, s.FrequencyPenalty = 1.1, 0.3, 0.2
		q.fields["repetition_penalty"], q.fields["presence_penalty"], q.fields["frequency_penalty"] = 1.1, 0.3, 0.2
	}
	if random.IntN(4) == 0 {
		q.options.Stop = []string{"\n\n", " the "}
		q.fields["stop"] = q.options.Stop
	}
	q.options.MaxTokens = 1 + random.IntN(120)
	q.fields["max_tokens"] = q.options.MaxTokens
	if random.IntN(3) > 0 {
		q.fields["stream"] = true
	}
	return q
}

// answer computes the answer with the model alone.
func (q *request) answer(ctx context.Context, g *generate.Generator, template *chat.Template) (c testCase, err error) {
	c.path, c.chat = "/v1/completions", len(q.messages) > 0
	c.stream = q.fields["stream"] == true
	if c.body, err = json.Marshal(q.fields); err != nil {
		return c, err
	}
	if c.chat {
		c.path = "/v1/chat/completions"
		if q.options.PromptIDs, err = template.Encode(ctx, g.Tokenizer(), q.messages, true); err != nil {
			return c, err
		}
		q.options.Stop = append(q.options.Stop, template.Stops()...)
	}
	r, err := g.Run(ctx, q.options)
	if err != nil {
		return c, err
	}
	c.text, c.tokens, c.finish = r.Text, len(r.IDs), "length"
	if r.Stopped == generate.EndOfText || r.Stopped == generate.StopString {
		c.finish = "stop"
	}
	return c, nil
}
