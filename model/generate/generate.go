package generate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/tokenizer"
)

// Options are the options of Run.
type Options struct {
	Prompt    string
	NoBOS     bool // default: the BOS comes first if the tokenizer's files ask for it and the prompt does not begin with it
	MaxTokens int  // most tokens to generate; default DefaultMaxTokens
	// Context is the maximum number of tokens, including the prompt. Default: the prompt's tokens
	// plus MaxTokens, at most max_position_embeddings of config.json.
	Context  int
	Sampling Sampling
	Stop     []string // the text ends before the first of these strings; an empty string is an error
	// IgnoreEOS bans the end tokens. Default: an end token ends the text.
	IgnoreEOS    bool
	PricePerHour float64 // price of the machine, in any currency; 0: costs are not computed
	// Text is called with each new piece of text, in whole characters. Token is called with each
	// token of the prompt and each chosen token. An error of a callback ends Run, which returns the
	// error. Default: none.
	Text  func(text string) error
	Token func(id int32, token string, prompt bool) error
}

// DefaultMaxTokens is the default for Options.MaxTokens.
const DefaultMaxTokens = 256

// prefillStep is the number of tokens of a prompt between two checks of the context.Context.
const prefillStep = 256

// run is the state of a Run.
type run struct {
	g       *Generator
	o       Options
	r       *Result
	session *model.Session
	sampler *Sampler
	stream  *tokenizer.Stream
	stopper stopper
	logits  []float32
}

// Run continues the prompt. If ctx is cancelled or a callback fails, Run returns the error and the
// Result so far; with other errors it returns no Result.
func (g *Generator) Run(ctx context.Context, o Options) (*Result, error) {
	start := time.Now()
	if o.MaxTokens == 0 {
		o.MaxTokens = DefaultMaxTokens
	}
	for _, s := range o.Stop {
		if s == "" {
			return nil, fmt.Errorf("a stop string is empty")
		}
	}
	ids, err := g.encode(o)
	if err != nil {
		return nil, err
	}
	if o.Context, err = g.context(o, len(ids)); err != nil {
		return nil, err
	}
	x := &run{g: g, o: o, r: g.newResult(o, ids), stream: g.tokenizer.NewStream(true), stopper: stopper{stops: o.Stop}}
	var banned []int32
	if o.IgnoreEOS {
		banned = g.eos
	}
	if x.sampler, err = NewSampler(o.Sampling, banned); err != nil {
		return nil, err
	}
	x.session = g.model.NewSession(o.Context)
	x.logits = make([]float32, g.model.VocabSize())
	err = x.generate(ctx, start, ids)
	if err != nil && err == ctx.Err() {
		x.r.Stopped = Interrupted
	}
	if err == nil || x.r.Stopped == Interrupted {
		if failed := x.text(x.stream.Flush(), true); failed != nil {
			err = failed
		}
	}
	if err != nil && x.r.Stopped != Interrupted && x.r.Stopped != OutputFailed {
		return nil, err
	}
	g.measure(x.r, time.Since(start), o.PricePerHour)
	return x.r, err
}

// encode returns the tokens of the prompt.
func (g *Generator) encode(o Options) ([]int32, error) {
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
	if len(ids) == 0 {
		return nil, fmt.Errorf("the prompt has no tokens, not even one for the beginning of a text (BOS): there is nothing to continue")
	}
	for _, id := range ids {
		if int(id) >= g.model.VocabSize() {
			return nil, fmt.Errorf("token %d of the prompt, %q, is not in the model's vocabulary of %d", id, g.tokenizer.Token(id), g.model.VocabSize())
		}
	}
	return ids, nil
}

// context returns the size of the session.
func (g *Generator) context(o Options, prompt int) (int, error) {
	size, why := o.Context, ""
	if size == 0 {
		size = prompt + o.MaxTokens
		if limit := g.model.Config().MaxPositions; limit > 0 && limit < size {
			size, why = limit, ", max_position_embeddings of config.json: the model was not made for more"
		}
	}
	if prompt > size {
		return 0, fmt.Errorf("the prompt has %d tokens, the context is %d%s", prompt, size, why)
	}
	return size, nil
}

// generate fills the cache with the prompt and generates until a stop condition holds.
func (x *run) generate(ctx context.Context, start time.Time, ids []int32) error {
	for _, id := range ids {
		x.stream.Next(id) // so that the text may begin with a space
		if err := x.token(id, true); err != nil {
			return err
		}
	}
	x.sampler.Accept(ids...)
	if err := x.prefill(ctx, ids); err != nil {
		return err
	}
	for {
		t := time.Now()
		id, err := x.sampler.Choose(x.logits)
		if err != nil {
			return fmt.Errorf("%s: after %d tokens: %w", x.g.path, x.session.Len(), err)
		}
		if x.sampler.Accept(id); len(x.r.IDs) == 0 {
			x.r.FirstTokenSeconds = time.Since(start).Seconds()
		} else {
			x.r.DecodeSeconds += time.Since(t).Seconds()
		}
		x.r.IDs = append(x.r.IDs, id)
		if done, err := x.take(id); done || err != nil {
			return err
		}
		if x.session.Len() == x.session.Cap() {
			x.r.Stopped = ContextFull
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		t = time.Now()
		if err := x.session.Forward([]int32{id}, x.logits, false); err != nil {
			return err
		}
		x.r.DecodeSeconds += time.Since(t).Seconds()
	}
}

func (x *run) prefill(ctx context.Context, ids []int32) error {
	t := time.Now()
	for len(ids) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		step := ids[:min(prefillStep, len(ids))]
		ids = ids[len(step):]
		logits := x.logits
		if len(ids) > 0 {
			logits = nil
		}
		if err := x.session.Forward(step, logits, false); err != nil {
			return err
		}
	}
	x.r.PrefillSeconds = time.Since(t).Seconds()
	return nil
}

// take outputs a chosen token and reports whether it is the last.
func (x *run) take(id int32) (done bool, err error) {
	if err := x.token(id, false); err != nil {
		return false, err
	}
	if slices.Contains(x.g.eos, id) {
		x.r.Stopped = EndOfText
		return true, nil
	}
	if err := x.text(x.stream.Next(id), false); err != nil || x.r.Stopped != "" {
		return true, err
	}
	if len(x.r.IDs) >= x.o.MaxTokens {
		x.r.Stopped = MaxTokens
		return true, nil
	}
	return false, nil
}

func (x *run) token(id int32, prompt bool) error {
	if x.o.Token == nil {
		return nil
	}
	err := x.o.Token(id, x.g.tokenizer.Token(id), prompt)
	if err != nil {
		x.r.Stopped = OutputFailed
	}
	return err
}

// text outputs text up to a stop string. At the end it holds nothing back.
func (x *run) text(piece string, end bool) error {
	if x.r.Stopped == StopString {
		return nil
	}
	text, stop := x.stopper.add(piece)
	if stop != "" {
		x.r.Stopped, x.r.StopString = StopString, stop
	} else if end {
		text += x.stopper.rest()
	}
	x.r.Text += text
	if text == "" || x.o.Text == nil {
		return nil
	}
	err := x.o.Text(text)
	if err != nil {
		x.r.Stopped = OutputFailed
	}
	return err
}
