package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/lowbit-go/gq/model/generate"
)

// completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	common
	prompts  prompts
	echo     bool
	logprobs *int
	bestOf   *int
}

// defaultCompletion is OpenAI's default of max_tokens for completions.
const defaultCompletion = 16

// noLogprob stands for a probability of 0, as at OpenAI: JSON has no infinity.
const noLogprob = -9999

// finite replaces the logarithm of 0.
func finite(logprob float64) float64 { return max(logprob, noLogprob) }

func parseCompletion(body []byte) (*completionRequest, error) {
	r := &completionRequest{common: newCommon()}
	o := r.object()
	o.fields["prompt"] = &r.prompts
	o.fields["echo"] = &r.echo
	o.fields["logprobs"] = &r.logprobs
	o.fields["best_of"] = &r.bestOf
	o.refused["suffix"] = []string{`""`}
	if err := o.read("", body); err != nil {
		return nil, err
	}
	if len(r.prompts) == 0 {
		return nil, invalid("prompt", "prompt is missing or empty")
	}
	if n := r.logprobs; n != nil && (*n < 0 || *n > generate.MaxTopLogprobs) {
		return nil, invalid("logprobs", "logprobs %d is not from 0 to %d", *n, generate.MaxTopLogprobs)
	}
	if b := r.bestOf; b != nil && (r.n == nil && *b != 1 || r.n != nil && *b != *r.n) {
		return nil, &apiError{status: http.StatusBadRequest, param: "best_of", code: codeUnmet, message: "best_of is not supported by this server, unless it equals n: leave it out"}
	}
	if n := r.maxTokens; n != nil && (*n < 0 || *n == 0 && !r.echo) {
		return nil, invalid("max_tokens", "max_tokens %d is not 1 or more; 0 needs echo", *n)
	}
	return r, nil
}

// prompts is the field prompt: a string, a list of strings, a list of token ids, or a list of lists
// of token ids.
type prompts []prompt

func (p *prompts) decode(at string, raw json.RawMessage) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*p = prompts{{text: one}}
		return nil
	}
	if ids := tokenIDs(raw); ids != nil {
		*p = prompts{{ids: ids}}
		return nil
	}
	if raw[0] != '[' {
		return expected(at, promptForms, raw)
	}
	list, err := elements(at, raw)
	if err != nil {
		return err
	}
	for i, raw := range list {
		at := element(at, i)
		one := prompt{ids: tokenIDs(raw)}
		if one.ids == nil && (string(raw) == "null" || json.Unmarshal(raw, &one.text) != nil) {
			return expected(at, "a string or token ids", raw)
		}
		*p = append(*p, one)
		if first := (*p)[0]; (first.ids == nil) != ((*p)[i].ids == nil) {
			return invalid(at, "%s: strings and token ids are mixed", at)
		}
	}
	return nil
}

// tokenIDs reads a list of integers that is not empty; nil if the value is something else.
func tokenIDs(raw json.RawMessage) []int32 {
	var list []*int32 // null would be a 0
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var ids []int32
	for _, id := range list {
		if id == nil {
			return nil
		}
		ids = append(ids, *id)
	}
	return ids
}

const promptForms = "a string, a list of strings, a list of token ids or a list of such lists"

func (s *Server) completions(x *exchange, r *http.Request) error {
	body, err := s.readBody(x, r)
	if err != nil {
		return err
	}
	q, err := parseCompletion(body)
	if err != nil {
		return err
	}
	j, err := s.newJob(&q.common, completionFormat{logprobs: q.logprobs != nil})
	if err != nil {
		return err
	}
	j.prompts, j.echo = q.prompts, q.echo
	switch {
	case q.maxTokens == nil:
		j.options.MaxTokens = defaultCompletion
	case *q.maxTokens == 0:
		j.options.MaxTokens = -1 // only the prompt is computed
	}
	if q.logprobs != nil {
		j.options.Logprobs, j.options.TopLogprobs, j.options.EchoLogprobs = true, *q.logprobs, q.echo
	}
	return s.answer(x, r, j)
}

// completionFormat writes completions.
type completionFormat struct {
	logprobs bool
}

type completionChoice struct {
	Text     string              `json:"text"`
	Index    int                 `json:"index"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Finish   *string             `json:"finish_reason"`
}

// completionLogprobs has an element per token in each list. The first token of an echoed prompt has
// null for numbers: a probability needs preceding tokens.
type completionLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []*float64           `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"` // in characters, from the start of the text
}

func (completionFormat) prefix() string     { return "cmpl-" }
func (completionFormat) object(bool) string { return "text_completion" }

func (f completionFormat) whole(c *choice) any {
	return completionChoice{Text: c.text.String(), Index: c.index, Logprobs: f.tokens(c, c.steps), Finish: c.finish()}
}

func (completionFormat) first(*choice) any { return nil }

func (f completionFormat) part(c *choice, text string, steps []generate.Step) any {
	return completionChoice{Text: text, Index: c.index, Logprobs: f.tokens(c, steps)}
}

func (f completionFormat) last(c *choice, steps []generate.Step) any {
	return completionChoice{Index: c.index, Logprobs: f.tokens(c, steps), Finish: c.finish()}
}

// tokens formats logprobs; nil without logprobs in the request.
func (f completionFormat) tokens(c *choice, steps []generate.Step) *completionLogprobs {
	if !f.logprobs {
		return nil
	}
	p := &completionLogprobs{Tokens: []string{}, Logprobs: []*float64{}, Top: []map[string]float64{}, Offsets: []int{}}
	for i := range steps {
		step := &steps[i]
		p.Tokens = append(p.Tokens, spelling(step.Token))
		p.Offsets = append(p.Offsets, c.offset)
		c.offset += utf8.RuneCountInString(c.piece(step))
		if math.IsNaN(step.Logprob) {
			p.Logprobs, p.Top = append(p.Logprobs, nil), append(p.Top, nil)
			continue
		}
		logprob := finite(step.Logprob)
		p.Logprobs, p.Top = append(p.Logprobs, &logprob), append(p.Top, top(step))
	}
	return p
}

// top lists the likeliest tokens and the chosen token. Of tokens with the same spelling only the
// likeliest counts: lm-evaluation-harness takes the largest number for the most likely token.
func top(step *generate.Step) map[string]float64 {
	list := map[string]float64{}
	for _, a := range step.Top {
		if _, ok := list[spelling(a.Token)]; !ok {
			list[spelling(a.Token)] = finite(a.Logprob)
		}
	}
	if _, ok := list[spelling(step.Token)]; !ok {
		list[spelling(step.Token)] = finite(step.Logprob)
	}
	return list
}

// spelling is the text of a token, or its bytes in OpenAI's form if the token holds a part of a
// character.
func spelling(token string) string {
	if utf8.ValidString(token) {
		return token
	}
	var b strings.Builder
	b.WriteString("bytes:")
	for _, c := range []byte(token) {
		fmt.Fprintf(&b, "\\x%02x", c)
	}
	return b.String()
}
