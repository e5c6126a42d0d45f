package choice

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// Item is an encoded question. A model scores the tokens of each ending behind the context.
type Item struct {
	Context []int32 // not empty
	Endings []Ending
	Answer  int
}

type Ending struct {
	Tokens []int32 // not empty
	// Skip is the number of the context's first tokens that this ending leaves out, because both
	// together are longer than the model's context.
	Skip int
	// Characters is the length of the ending's text, without the delimiter, in code points.
	Characters int
}

// Cut reports whether an ending leaves out tokens of the context.
func (i *Item) Cut() bool {
	return slices.ContainsFunc(i.Endings, func(e Ending) bool { return e.Skip > 0 })
}

// Encoder encodes questions as lm-evaluation-harness does (_encode_pair in lm_eval/api/model.py,
// _loglikelihood_tokens in lm_eval/models/huggingface.py).
type Encoder struct {
	t      *tokenizer.Tokenizer
	bos    []int32 // the BOS that the tokenizer adds to every text, if any
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
	// White space at the end of the prompt belongs to the endings, because most tokenizers join such
	// space to the next word.
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

// The functions of this file do what lm-evaluation-harness does with methods of Python's strings.

// strip is Python's str.strip().
func strip(s string) string { return strings.TrimFunc(s, text.IsSpace) }

// capitalize is Python's str.capitalize().
func capitalize(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToTitle(first)) + strings.ToLower(s[size:])
}

// brackets are remains of WikiHow's markup in HellaSwag.
var brackets = regexp.MustCompile(`\[.*?\]`)

// plainHellaSwag is preprocess in lm_eval/tasks/hellaswag/utils.py.
func plainHellaSwag(s string) string {
	s = strings.ReplaceAll(strip(s), " [title]", ". ")
	return strings.ReplaceAll(brackets.ReplaceAllLiteralString(s, ""), "  ", " ")
}
