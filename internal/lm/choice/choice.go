package choice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// Question is a prompt with several endings.
type Question struct {
	Prompt string
	// Endings are the answers. A model scores each ending behind Prompt and Delimiter.
	Endings   []string
	Delimiter string
	Answer    int // index of the right ending
	Line      int // in the file, from 1
}

type Form string

// The forms of questions. All questions of a file have the same form.
const (
	Plain     Form = "prompt" // {"prompt": "...", "endings": ["..."], "answer": 0}
	HellaSwag Form = "hellaswag"
	ARC       Form = "arc"
	MMLU      Form = "mmlu"
)

// LineError reports a line that is not a question.
type LineError struct {
	Line int // from 1
	Msg  string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Msg) }

// ErrNoQuestions reports a file without questions.
var ErrNoQuestions = errors.New("no questions: a JSON object with a prompt, endings and the answer is expected on each line")

// Read reads questions, one JSON object a line, at most most of them (0: all). Empty lines are
// skipped. Errors about a line are of type *LineError.
func Read(data []byte, most int) ([]Question, Form, error) {
	var list []Question
	var form Form
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		q, of, err := parse(line)
		if err == nil && form != "" && of != form {
			err = fmt.Errorf("a question of the form %s among questions of the form %s", of, form)
		}
		if err != nil {
			return nil, "", &LineError{n, err.Error()}
		}
		q.Line, form = n, of
		if list = append(list, q); len(list) == most {
			break
		}
	}
	if len(list) == 0 {
		return nil, "", ErrNoQuestions
	}
	return list, form, nil
}

// maxEndings bounds the endings of a question: benchmarks have ten at most.
const maxEndings = 256

func parse(line []byte) (Question, Form, error) {
	var fields map[string]json.RawMessage
	if !utf8.Valid(line) {
		return Question{}, "", errors.New("is not UTF-8")
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		if line[0] == '[' {
			return Question{}, "", errors.New("is a JSON list: one JSON object a line is expected")
		}
		return Question{}, "", fmt.Errorf("is not a JSON object: %w", err)
	}
	for _, f := range forms {
		missing := func(key string) bool { return fields[key] == nil || string(fields[key]) == "null" }
		if slices.ContainsFunc(f.keys, missing) {
			continue
		}
		q, err := f.read(line)
		switch n := len(q.Endings); {
		case err != nil:
			err = fmt.Errorf("a question of the form %s: %w", f.form, err)
		case n < 2 || n > maxEndings:
			err = fmt.Errorf("has %d endings: 2 to %d are expected", n, maxEndings)
		case q.Answer < 0 || q.Answer >= n:
			err = fmt.Errorf("the answer is %d, of %d endings: the index of an ending, from 0, is expected", q.Answer, n)
		}
		return q, f.form, err
	}
	return Question{}, "", errors.New(`has the keys of no known form: "prompt", "endings" and "answer"; ` +
		`HellaSwag's "activity_label", "ctx_a", "ctx_b", "endings" and "label"; ARC's "question", "choices" and "answerKey"; MMLU's "question", "subject", "choices" and "answer"`)
}

// forms lists how the forms are recognized and read, the more specific forms first.
var forms = []struct {
	form Form
	keys []string
	read func(line []byte) (Question, error)
}{
	{HellaSwag, []string{"activity_label", "ctx_a", "ctx_b", "endings", "label"}, readHellaSwag},
	{ARC, []string{"question", "choices", "answerKey"}, readARC},
	{MMLU, []string{"question", "subject", "choices", "answer"}, readMMLU},
	{Plain, []string{"prompt", "endings", "answer"}, readPlain},
}

func readPlain(line []byte) (Question, error) {
	in := struct {
		Prompt    string
		Endings   []string
		Answer    int
		Delimiter string
	}{Delimiter: " "}
	err := json.Unmarshal(line, &in)
	return Question{Prompt: in.Prompt, Endings: in.Endings, Delimiter: in.Delimiter, Answer: in.Answer}, err
}

// readARC follows lm_eval/tasks/arc/arc_easy.yaml.
func readARC(line []byte) (Question, error) {
	var in struct {
		Question string
		Choices  struct{ Text, Label []string }
		Key      string `json:"answerKey"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return Question{}, err
	}
	if len(in.Choices.Text) != len(in.Choices.Label) {
		return Question{}, fmt.Errorf("%d choices have %d labels", len(in.Choices.Text), len(in.Choices.Label))
	}
	answer := slices.Index(in.Choices.Label, in.Key)
	if answer < 0 {
		return Question{}, fmt.Errorf("the answer %q is none of the labels %q", in.Key, in.Choices.Label)
	}
	return Question{Prompt: "Question: " + in.Question + "\nAnswer:", Endings: in.Choices.Text, Delimiter: " ", Answer: answer}, nil
}

// readMMLU follows lm_eval/tasks/mmlu/default, without examples before the question. The endings
// are the letters of the choices.
func readMMLU(line []byte) (Question, error) {
	var in struct {
		Question, Subject string
		Choices           []string
		Answer            int
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return Question{}, err
	}
	letters := []string{"A", "B", "C", "D"}
	if len(in.Choices) != len(letters) {
		return Question{}, fmt.Errorf("%d choices: %d are expected", len(in.Choices), len(letters))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The following are multiple choice questions (with answers) about %s.\n\n", strings.ReplaceAll(in.Subject, "_", " "))
	b.WriteString(strip(in.Question))
	for i, c := range in.Choices {
		fmt.Fprintf(&b, "\n%s. %s", letters[i], c)
	}
	b.WriteString("\nAnswer:")
	return Question{Prompt: b.String(), Endings: letters, Delimiter: " ", Answer: in.Answer}, nil
}

// readHellaSwag follows process_docs in lm_eval/tasks/hellaswag/utils.py.
func readHellaSwag(line []byte) (Question, error) {
	var in struct {
		Activity string `json:"activity_label"`
		CtxA     string `json:"ctx_a"`
		CtxB     string `json:"ctx_b"`
		Endings  []string
		Label    json.RawMessage // a number, perhaps in a string
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return Question{}, err
	}
	answer, err := strconv.Atoi(strings.Trim(string(in.Label), `"`))
	if err != nil {
		return Question{}, fmt.Errorf("the label is %.20s: an index of an ending is expected (the test set has none, the validation set has)", in.Label)
	}
	q := Question{Prompt: plainHellaSwag(in.Activity + ": " + in.CtxA + " " + capitalize(in.CtxB)), Delimiter: " ", Answer: answer}
	for _, e := range in.Endings {
		q.Endings = append(q.Endings, plainHellaSwag(e))
	}
	return q, nil
}

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
