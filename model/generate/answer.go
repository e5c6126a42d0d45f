package generate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// Step is a token of the prompt or a generated token.
type Step struct {
	ID     int32
	Prompt bool
	// Token is the token's bytes, perhaps a part of a character. Text is the text that is certain with
	// this token: Text may lack characters that are incomplete or may begin a stop string, and have
	// characters of earlier tokens.
	Token, Text string
	// Logprob is the natural logarithm of the token's probability. The first token of a prompt has
	// NaN, and every token without Options.Logprobs.
	Logprob float64
	Top     []Alternative // the likeliest tokens, likeliest first
}

// Alternative is a token that might have been chosen.
type Alternative struct {
	ID      int32
	Token   string // its bytes
	Logprob float64
}

// answer chooses the tokens of an answer and finds its end, for Generator.Run and for an Engine.
type answer struct {
	g       *Generator
	o       Options
	ids     []int32 // prompt
	count   int     // tokens chosen
	sampler *sampler
	stream  *tokenizer.Stream
	stopper stopper
	scorer  scorer

	stopped    Reason // "": not yet
	stopString string
}

// newAnswer checks the options. limit, if not 0, is the most tokens of a sequence.
func (g *Generator) newAnswer(o Options, limit int) (*answer, error) {
	o.MaxTokens = cmp.Or(o.MaxTokens, DefaultMaxTokens)
	if slices.Contains(o.Stop, "") {
		return nil, fmt.Errorf("a stop string is empty")
	}
	if o.TopLogprobs < 0 || o.TopLogprobs > MaxTopLogprobs {
		return nil, fmt.Errorf("top-logprobs %d is not from 0 to %d", o.TopLogprobs, MaxTopLogprobs)
	}
	ids, err := g.encode(o)
	if err != nil {
		return nil, err
	}
	if o.Context, err = g.context(o, len(ids), limit); err != nil {
		return nil, err
	}
	a := &answer{g: g, o: o, ids: ids, stream: g.tokenizer.NewStream(true), stopper: stopper{stops: o.Stop}}
	var banned []int32
	if o.IgnoreEOS {
		banned = g.eos
	}
	if a.sampler, err = newSampler(o.Sampling, banned); err != nil {
		return nil, err
	}
	for _, id := range ids {
		a.stream.Next(id) // so that the text may begin with a space
	}
	a.sampler.Prompt(ids...)
	if o.MaxTokens < 0 {
		a.stopped = MaxTokens
	}
	return a, nil
}

func (a *answer) echo() bool { return a.o.EchoLogprobs }

// promptStep returns a token of the prompt. logits are the logits of its place, or nil if unknown.
func (a *answer) promptStep(at int, logits []float32) (Step, error) {
	known := a.o.Logprobs && logits != nil
	if known {
		if err := a.scorer.set(logits, a.o.TopLogprobs); err != nil {
			return Step{}, a.after(at, err)
		}
	}
	s := a.newStep(a.ids[at], known)
	s.Prompt, s.Text = true, s.Token
	return s, nil
}

// after says in an error after how many tokens the error occurred.
func (a *answer) after(tokens int, err error) error {
	return fmt.Errorf("%s: after %d tokens: %w", a.g.path, tokens, err)
}

// newStep returns a token. known says that the scorer has its probability.
func (a *answer) newStep(id int32, known bool) Step {
	s := Step{ID: id, Token: a.g.tokenizer.Bytes(id), Logprob: math.NaN()}
	if known {
		s.Logprob, s.Top = a.scorer.logprob(id), a.scorer.top(a.g.tokenizer)
	}
	return s
}

// choose chooses the next token and sets stopped if that is the last. choose overwrites logits.
func (a *answer) choose(logits []float32) (Step, error) {
	if a.o.Logprobs {
		if err := a.scorer.set(logits, a.o.TopLogprobs); err != nil {
			return Step{}, a.after(len(a.ids)+a.count, err)
		}
	}
	id, err := a.sampler.Choose(logits)
	if err != nil {
		return Step{}, a.after(len(a.ids)+a.count, err)
	}
	s := a.newStep(id, a.o.Logprobs)
	a.sampler.Accept(id)
	a.count++
	s.Text = a.take(id)
	if a.stopped != "" && a.stopped != StopString {
		s.Text += a.flush()
	}
	return s, nil
}

// take decides whether a chosen token is the last, and returns its text.
func (a *answer) take(id int32) string {
	if slices.Contains(a.g.eos, id) {
		a.stopped = EndOfText
		return ""
	}
	text, stop := a.stopper.add(a.stream.Next(id))
	switch {
	case stop != "":
		a.stopped, a.stopString = StopString, stop
	case a.count >= a.o.MaxTokens:
		a.stopped = MaxTokens
	case len(a.ids)+a.count > a.o.Context:
		a.stopped = ContextFull
	}
	return text
}

// flush returns the text that was held back. This text may complete a stop string.
func (a *answer) flush() string {
	text, stop := a.stopper.add(a.stream.Flush())
	if stop != "" {
		a.stopped, a.stopString = StopString, stop
		return text
	}
	return text + a.stopper.rest()
}
