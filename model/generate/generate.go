package generate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/tokenizer"
)

// Options are the options of Run.
type Options struct {
	Prompt string
	// PromptIDs, if not nil, is the prompt as tokens instead of Prompt. No BOS is added.
	PromptIDs []int32
	NoBOS     bool // default: the BOS comes first if the tokenizer's files ask for it and the prompt does not begin with it
	MaxTokens int  // most tokens to generate; default DefaultMaxTokens; below 0: none, the prompt is computed only
	// Context is the maximum number of tokens, including the prompt. Default: the prompt's tokens
	// plus MaxTokens, at most max_position_embeddings of config.json.
	Context  int
	Sampling Sampling
	Stop     []string // the text ends before the first of these strings; an empty string is an error
	// IgnoreEOS bans the end tokens. Default: an end token ends the text.
	IgnoreEOS    bool
	PricePerHour float64 // price of the machine, in any currency; 0: costs are not computed
	// Logprobs computes the logarithm of each generated token's probability for Step, from the
	// model's own logits: bans, penalties and Temperature come later.
	Logprobs    bool
	TopLogprobs int // with Logprobs: the likeliest tokens to list beside each token, at most MaxTopLogprobs
	// EchoLogprobs calls Step with the tokens of the prompt too, with their logarithms if Logprobs is
	// set. The whole prompt is then computed.
	EchoLogprobs bool
	// Text is called with each new piece of text, in whole characters. Token is called with each
	// token of the prompt and each chosen token. Step is called with each chosen token, before Text.
	// An error of a callback ends Run, which returns the error. Default: none.
	Text  func(text string) error
	Token func(id int32, token string, prompt bool) error
	Step  func(s Step) error
}

// DefaultMaxTokens is the default for Options.MaxTokens.
const DefaultMaxTokens = 256

// MaxTopLogprobs is the limit of Options.TopLogprobs, as in OpenAI's interface.
const MaxTopLogprobs = 20

// prefillStep is the number of tokens of a prompt between two checks of the context.Context.
const prefillStep = 256

// echoStep is the number of tokens of a prompt whose logits are computed at a time. Logits of a
// large vocabulary take half a megabyte per token.
const echoStep = 64

// Run continues the prompt. If ctx is cancelled or a callback fails, Run returns the error and the
// Result so far; with other errors it returns no Result.
func (g *Generator) Run(ctx context.Context, o Options) (*Result, error) {
	start := time.Now()
	a, err := g.newAnswer(o, 0)
	if err != nil {
		return nil, err
	}
	out := g.newOutput(a, start)
	if err = out.prompt(); err == nil {
		err = g.generate(ctx, a, out)
	}
	interrupted := err != nil && err == ctx.Err()
	held := ""
	if interrupted {
		held = a.flush()
	}
	return out.finish(err, interrupted, held)
}

// generate computes an answer in a Session of its own.
func (g *Generator) generate(ctx context.Context, a *answer, out *output) error {
	s := g.model.NewSession(a.o.Context)
	logits, err := g.prefill(ctx, s, a, out)
	if err != nil {
		return err
	}
	for a.stopped == "" {
		step, err := a.choose(logits)
		if err != nil {
			return err
		}
		out.chosen(time.Now())
		if err := out.step(step); err != nil {
			return err
		}
		if a.stopped != "" {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.Forward([]int32{step.ID}, logits, false); err != nil {
			return err
		}
	}
	out.stop(a.stopped, a.stopString)
	return nil
}

// prefill computes the prompt and returns the logits that follow it.
func (g *Generator) prefill(ctx context.Context, s *model.Session, a *answer, out *output) ([]float32, error) {
	t := time.Now()
	vocab, size := g.model.VocabSize(), prefillStep
	if a.echo() {
		size = echoStep
		if err := a.echoed(0, nil, out); err != nil {
			return nil, err
		}
	}
	var buf, logits []float32
	for at := 0; at < len(a.ids); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(size, len(a.ids)-at)
		all := a.echo()
		switch {
		case all:
			logits = buffer.Grow(&buf, n*vocab)
		case at+n == len(a.ids):
			logits = buffer.Grow(&buf, vocab)
		}
		if err := s.Forward(a.ids[at:at+n], logits, all); err != nil {
			return nil, err
		}
		for i := 0; all && i < n && at+i+1 < len(a.ids); i++ {
			if err := a.echoed(at+i+1, logits[i*vocab:][:vocab], out); err != nil {
				return nil, err
			}
		}
		at += n
	}
	out.prefilled(time.Since(t), 0)
	return logits[len(logits)-vocab:], nil
}

// echoed passes a token of the prompt on.
func (a *answer) echoed(at int, logits []float32, out *output) error {
	step, err := a.promptStep(at, logits)
	if err != nil {
		return err
	}
	return out.step(step)
}

// encode returns the tokens of the prompt.
func (g *Generator) encode(o Options) ([]int32, error) {
	ids := o.PromptIDs
	if ids == nil {
		var err error
		if ids, err = g.encodeText(o); err != nil {
			return nil, err
		}
	}
	if len(ids) == 0 {
		return nil, ErrNoTokens
	}
	for _, id := range ids {
		if id < 0 || int(id) >= g.model.VocabSize() {
			return nil, fmt.Errorf("token %d of the prompt, %q, is not in the model's vocabulary of %d", id, g.tokenizer.Token(id), g.model.VocabSize())
		}
	}
	return ids, nil
}

func (g *Generator) encodeText(o Options) ([]int32, error) {
	ids, err := g.tokenizer.Encode(o.Prompt, tokenizer.Options{})
	if err != nil {
		return nil, err
	}
	bos, ok, err := g.tokenizer.FirstBOS()
	if err != nil {
		return nil, err
	}
	if ok && !o.NoBOS && (len(ids) == 0 || ids[0] != bos) {
		ids = append([]int32{bos}, ids...)
	}
	return ids, nil
}

// context returns the most tokens of a sequence. limit, if not 0, is the room that there is.
func (g *Generator) context(o Options, prompt, limit int) (int, error) {
	size, why := o.Context, ""
	if size == 0 {
		size = prompt + max(0, min(o.MaxTokens, math.MaxInt32))
		if most := g.model.Config().MaxPositions; most > 0 && most < size {
			size, why = most, ", max_position_embeddings of config.json: the model was not made for more"
		}
	}
	if limit > 0 && limit < size {
		size, why = limit, ""
	}
	if prompt > size {
		return 0, &ContextError{Prompt: prompt, Context: size, why: why}
	}
	return size, nil
}

// ErrNoTokens is returned for an empty prompt.
var ErrNoTokens = errors.New("the prompt has no tokens, not even one for the beginning of a text (BOS): there is nothing to continue")

// ContextError is returned for a prompt that is longer than the context.
type ContextError struct {
	Prompt, Context int // in tokens
	why             string
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("the prompt has %d tokens, the context is %d%s", e.Prompt, e.Context, e.why)
}
