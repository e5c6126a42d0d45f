package generate

import (
	"errors"
	"fmt"
	"math"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// Options are the options of Run.
type Options struct {
	Prompt string
	// PromptIDs, if not nil, is the prompt as tokens instead of Prompt. No BOS is added.
	PromptIDs []int32
	// NoBOS omits the BOS. Default: the BOS comes first if the tokenizer's files ask for a BOS and the
	// prompt has none.
	NoBOS     bool
	MaxTokens int // default DefaultMaxTokens; below 0: only the prompt is computed
	// Context is the maximum number of tokens, including the prompt. Default: the prompt's tokens
	// plus MaxTokens, at most max_position_embeddings of config.json.
	Context  int
	Scope    string // an Engine shares keys and values of prompts within a Scope only; default ""
	Sampling Sampling
	Stop     []string // the text ends before the first of these strings; an empty string is an error
	// IgnoreEOS bans the end tokens. Default: an end token ends the text.
	IgnoreEOS    bool
	PricePerHour float64 // price of the machine, in any currency; 0: costs are not computed
	// Logprobs computes the logarithm of each generated token's probability for Step, from the
	// model's own logits: bans, penalties and Temperature come later.
	Logprobs    bool
	TopLogprobs int // likeliest tokens to list for each token with Logprobs, at most MaxTopLogprobs
	// EchoLogprobs calls Step with the tokens of the prompt too, with their logarithms if Logprobs is
	// set. The whole prompt is then computed.
	EchoLogprobs bool
	// Text is called with each new piece of text, in whole characters. Token is called with each
	// token of the prompt and each chosen token. Step is called with each chosen token, before Text.
	// A callback's error ends Run and is returned. Default: none.
	Text  func(text string) error
	Token func(id int32, token string, prompt bool) error
	Step  func(s Step) error
}

// DefaultMaxTokens is the default for Options.MaxTokens.
const DefaultMaxTokens = 256

// MaxTopLogprobs is the limit of Options.TopLogprobs, as in OpenAI's interface.
const MaxTopLogprobs = 20

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

// context returns the maximum number of tokens of a sequence. limit, if not 0, is the available
// room.
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

// ContextWarning warns of a context that is longer than the model was made for, or returns "".
func (g *Generator) ContextWarning(context int) string {
	if most := g.model.Config().MaxPositions; most > 0 && context > most {
		return fmt.Sprintf("a context of %d tokens is above %d, max_position_embeddings of config.json: text behind them may make no sense", context, most)
	}
	return ""
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
