package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// request is a line of the input of answer. A request has one of Text, Messages and Tokens.
type request struct {
	Text     *string // to be encoded, and decoded again
	Special  bool    // add the tokens that the post-processor adds
	Messages []chat.Message
	Generate bool    // add the beginning of the assistant's answer
	Tokens   []int32 // of the logits
	Logits   string  // file for the logits of all positions, float32 [tokens][vocabulary]
}

// response is a line of the output.
type response struct {
	IDs     []int32 `json:"ids,omitempty"`
	Text    string  `json:"text,omitempty"`
	Prompt  string  `json:"prompt,omitempty"`
	Refused string  `json:"refused,omitempty"`
}

// subject is the model that answers. Tokenizer and template are nil for a .gguf file.
type subject struct {
	tokenizer *tokenizer.Tokenizer
	template  *chat.Template
	model     *forward.Model
}

// answer answers each line of the input with a line of the output.
func answer(ctx context.Context, path string, in io.Reader, out io.Writer) error {
	s, done, err := open(path)
	if err != nil {
		return err
	}
	defer done()
	lines := bufio.NewReader(in)
	w := json.NewEncoder(out)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		var q request
		if err := json.Unmarshal(line, &q); err != nil {
			return err
		}
		r, err := s.answer(ctx, q)
		if err != nil {
			return err
		}
		if err := w.Encode(r); err != nil {
			return err
		}
	}
}

func open(path string) (s *subject, done func(), err error) {
	s = new(subject)
	var o forward.Options
	var file io.Closer
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(path, name)) }
	switch filepath.Ext(path) {
	case ".gguf":
		f, err := gguf.Open(path)
		if err != nil {
			return nil, nil, err
		}
		file, read = f, nil
		s.model, err = forward.OpenGGUF(f, o)
		if err != nil {
			return nil, nil, err
		}
	case ".gqf":
		f, err := gqf.Open(path, gqf.Options{})
		if err != nil {
			return nil, nil, err
		}
		file, read, o.Activations = f, f.Asset, forward.Float32
		if s.model, err = forward.OpenGQF(f, o); err != nil {
			return nil, nil, err
		}
	default:
		if s.model, err = forward.OpenCheckpoint(path, o); err != nil {
			return nil, nil, err
		}
	}
	if read != nil {
		if s.tokenizer, err = tokenizer.Read(read); err != nil {
			return nil, nil, err
		}
		if s.template, err = chat.Open(read); err != nil {
			return nil, nil, err
		}
	}
	return s, func() {
		s.model.Close()
		if file != nil {
			file.Close()
		}
	}, nil
}

func (s *subject) answer(ctx context.Context, q request) (r response, err error) {
	switch {
	case q.Tokens != nil:
		return r, s.logits(q)
	case s.tokenizer == nil:
		return r, errors.New("a .gguf file answers with logits alone")
	case q.Text != nil:
		if r.IDs, err = s.tokenizer.Encode(*q.Text, tokenizer.Options{AddSpecial: q.Special}); err == nil {
			r.Text = s.tokenizer.Decode(r.IDs, false)
		}
		return r, err
	}
	r.Prompt, err = s.template.Render(ctx, q.Messages, q.Generate)
	if refused, ok := errors.AsType[*chat.RefusedError](err); ok {
		return response{Refused: refused.Msg}, nil
	}
	return r, err
}

// logits writes the logits of all positions to the file of the request.
func (s *subject) logits(q request) error {
	logits, err := allLogits(s.model, q.Tokens)
	if err != nil {
		return err
	}
	var b strings.Builder
	if err := binary.Write(&b, binary.LittleEndian, logits); err != nil {
		return err
	}
	return os.WriteFile(q.Logits, []byte(b.String()), 0o666)
}

// allLogits returns the logits of all positions, [tokens][vocabulary].
func allLogits(m *forward.Model, tokens []int32) ([]float32, error) {
	logits := make([]float32, len(tokens)*m.VocabSize())
	if err := m.NewSession(len(tokens)).Forward(tokens, logits, true); err != nil {
		return nil, fmt.Errorf("logits: %w", err)
	}
	return logits, nil
}
