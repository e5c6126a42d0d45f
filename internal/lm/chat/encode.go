package chat

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// Encode returns the tokens of a conversation's prompt. A BOS is placed by the template, or for a
// plain template by the tokenizer's files.
//
// Names of special tokens in a message are text: a user who writes <|im_end|> does not end the
// message. Messages of the assistant are an exception, since templates look for tokens there.
// Otherwise the tokens are the encoding of the text that Render returns. The errors are Render's.
func (t *Template) Encode(ctx context.Context, tok *tokenizer.Tokenizer, messages []Message, addGenerationPrompt bool) ([]int32, error) {
	marked, mark, err := t.mark(tok, messages)
	if err != nil {
		return nil, err
	}
	text, err := t.Render(ctx, marked, addGenerationPrompt)
	if err != nil {
		return nil, err
	}
	text, plain := unmark(text, mark)
	ids, err := tok.Encode(text, tokenizer.Options{PlainAt: plain})
	if err != nil || t.Source != plainName {
		return ids, err
	}
	bos, ok, err := tok.FirstBOS()
	if ok && (len(ids) == 0 || ids[0] != bos) {
		ids = append([]int32{bos}, ids...)
	}
	return ids, err
}

// mark inserts an unused character behind the first character of each special token's name in the
// messages, so that the template carries the mark along.
func (t *Template) mark(tok *tokenizer.Tokenizer, messages []Message) ([]Message, string, error) {
	untrusted := func(m Message) bool { return m.Role != "assistant" }
	if !slices.ContainsFunc(messages, func(m Message) bool {
		return untrusted(m) && (len(tok.SpecialTokens(m.Content)) > 0 || len(tok.SpecialTokens(m.Name)) > 0)
	}) {
		return messages, "", nil
	}
	mark, err := t.unused(messages)
	if err != nil {
		return nil, "", err
	}
	list := slices.Clone(messages)
	for i, m := range list {
		if untrusted(m) {
			list[i].Content, list[i].Name = markText(tok, m.Content, mark), markText(tok, m.Name, mark)
		}
	}
	return list, mark, nil
}

// Marks are among the characters for private use of plane 15.
const firstMark, lastMark = '\U000F0000', '\U000FFFFD'

// unused returns a character for private use that is neither in the template nor in the messages.
func (t *Template) unused(messages []Message) (string, error) {
	used := make([]bool, lastMark-firstMark+1)
	collect := func(texts ...string) {
		for _, text := range texts {
			for _, r := range text {
				if r >= firstMark && r <= lastMark {
					used[r-firstMark] = true
				}
			}
		}
	}
	collect(t.source)
	for _, token := range t.tokens {
		collect(token)
	}
	for _, m := range messages {
		collect(m.Role, m.Content, m.Name)
	}
	at := slices.Index(used, false)
	if at < 0 {
		return "", &RefusedError{fmt.Sprintf("the messages contain names of special tokens and all %d characters for private use of Unicode's plane 15: remove one", len(used))}
	}
	return string(firstMark + rune(at)), nil
}

func markText(tok *tokenizer.Tokenizer, text, mark string) string {
	var b strings.Builder
	done := 0
	for _, at := range tok.SpecialTokens(text) {
		_, n := utf8.DecodeRuneInString(text[at:])
		b.WriteString(text[done:at+n] + mark)
		done = at + n
	}
	return b.String() + text[done:]
}

// unmark removes the marks and returns the offsets of the marked names of special tokens.
func unmark(text, mark string) (string, []int) {
	if mark == "" {
		return text, nil
	}
	parts := strings.Split(text, mark)
	var b strings.Builder
	var plain []int
	for i, part := range parts {
		b.WriteString(part)
		if i < len(parts)-1 {
			_, n := utf8.DecodeLastRuneInString(b.String())
			plain = append(plain, b.Len()-n)
		}
	}
	return b.String(), plain
}
