package choice

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/model/tokenizer"
)

// Item is an encoded question. A model scores the tokens of each ending behind the context.
type Item struct {
	Context []int32 // at least one token
	Endings []Ending
	Answer  int
}

// Ending is an encoded ending.
type Ending struct {
	Tokens []int32 // at least one
	// Skip is the number of the context's first tokens that this ending leaves out, because both
	// together are longer than the model's context.
	Skip int
	// Characters is the length of the ending's text, without the delimiter, in code points.
	Characters int
}

// Cut reports whether an ending leaves out tokens of the context.
func (i *Item) Cut() bool {
	for _, e := range i.Endings {
		if e.Skip > 0 {
			return true
		}
	}
	return false
}

// Encoder encodes questions as lm-evaluation-harness does (_encode_pair in lm_eval/api/model.py,
// _loglikelihood_tokens in lm_eval/models/huggingface.py).
type Encoder struct {
	t      *tokenizer.Tokenizer
	bos    []int32 // before every text, if the tokenizer adds it
	prefix []int32 // the context of an empty prompt: BOS, or else EOS
	length int
}

// NewEncoder makes an encoder for a model that reads length tokens.
func NewEncoder(t *tokenizer.Tokenizer, length int) (*Encoder, error) {
	e := &Encoder{t: t, length: length}
	bos, added, err := t.FirstBOS()
	if err != nil {
		return nil, err
	}
	if added {
		e.bos = []int32{bos}
	}
	if bos, ok := t.BOS(); ok {
		e.prefix = []int32{bos}
	} else if eos, ok := t.EOS(); ok {
		e.prefix = []int32{eos}
	}
	return e, nil
}

// Encode encodes a question. Errors are of type *LineError.
func (e *Encoder) Encode(ctx context.Context, q *Question) (*Item, error) {
	item := &Item{Answer: q.Answer}
	// White space at the end of the prompt belongs to the endings, because most tokenizers join it
	// to the word behind it.
	prompt := strings.TrimRightFunc(q.Prompt, text.IsSpace)
	moved := q.Prompt[len(prompt):] + q.Delimiter
	var err error
	if item.Context, err = e.encode(ctx, prompt); err != nil {
		return nil, err
	}
	context := len(item.Context)
	if context == 0 {
		if item.Context = e.prefix; len(item.Context) == 0 {
			return nil, &LineError{q.Line, "the prompt is empty, and the tokenizer has neither BOS nor EOS to begin with"}
		}
	}
	for i, s := range q.Endings {
		whole, err := e.encode(ctx, prompt+moved+s)
		if err != nil {
			return nil, err
		}
		end := Ending{Characters: utf8.RuneCountInString(s)}
		if context < len(whole) {
			end.Tokens = whole[context:]
		}
		switch {
		case len(end.Tokens) == 0:
			return nil, &LineError{q.Line, fmt.Sprintf("ending %d (%.20q) has no tokens of its own behind the prompt", i, s)}
		case len(end.Tokens) > e.length:
			return nil, &LineError{q.Line, fmt.Sprintf("ending %d has %d tokens: the model's context has %d", i, len(end.Tokens), e.length)}
		}
		// The last token of the ending is not read.
		end.Skip = min(max(len(item.Context)+len(end.Tokens)-1-e.length, 0), len(item.Context)-1)
		item.Endings = append(item.Endings, end)
	}
	return item, nil
}

func (e *Encoder) encode(ctx context.Context, s string) ([]int32, error) {
	ids, err := e.t.EncodeContext(ctx, s, tokenizer.Options{})
	if err != nil {
		return nil, err
	}
	return append(append([]int32{}, e.bos...), ids...), nil
}

// EncodeAll encodes questions.
func (e *Encoder) EncodeAll(ctx context.Context, list []Question) ([]*Item, error) {
	items := make([]*Item, len(list))
	for i := range list {
		var err error
		if items[i], err = e.Encode(ctx, &list[i]); err != nil {
			return nil, err
		}
	}
	return items, nil
}
