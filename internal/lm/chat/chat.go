package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// Message is a part of a conversation.
type Message struct {
	Role    string // usually system, user or assistant
	Content string
	Name    string // of the participant; default none
}

// Template makes prompts of conversations, also for several goroutines at once.
type Template struct {
	// Source is the file that the template comes from, or "plain".
	Source string

	source   string
	stops    []string
	template *minijinja.Template
	tokens   map[string]string
	now      func() time.Time
}

// Open reads a model's chat template: chat_template.jinja, else chat_template of
// tokenizer_config.json, else of chat_template.json, else a plain template. asset returns the
// content of a file of the model, or fs.ErrNotExist.
func Open(asset func(name string) ([]byte, error)) (*Template, error) {
	sources, file, err := Sources(asset)
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return compile(plainSource, plainName, nil, plainStops)
	}
	source, ok := choose(sources)
	if !ok {
		return nil, fmt.Errorf("%s: %d chat templates, none of them named default", file, len(sources))
	}
	tokens, err := specialTokens(asset)
	if err != nil {
		return nil, err
	}
	return compile(source, file, tokens, nil)
}

func choose(sources []Source) (text string, ok bool) {
	for _, s := range sources {
		if s.Name == "default" {
			return s.Text, true
		}
	}
	if len(sources) == 1 {
		return sources[0].Text, true
	}
	return "", false
}

func compile(source, file string, tokens map[string]string, stops []string) (*Template, error) {
	text, err := rewrite(source)
	if err != nil {
		return nil, fmt.Errorf("chat template in %s: %w", file, err)
	}
	t, err := newEnvironment().TemplateFromNamedString(templateName, text)
	if err != nil {
		return nil, fmt.Errorf("chat template in %s: %w", file, plainError(err))
	}
	return &Template{Source: file, source: source, stops: stops, template: t, tokens: tokens, now: time.Now}, nil
}

// Stops returns the strings, apart from the model's end tokens, that end an answer.
func (t *Template) Stops() []string { return t.stops }

// Render returns the prompt for a conversation. addGenerationPrompt adds the beginning of the
// assistant's answer. The template writes the BOS token if the model needs a BOS, so encode the
// prompt without adding a BOS.
//
// If the template refuses a conversation, for example two messages of the same role in succession,
// the error is a *[RefusedError] with the template's words. Too many messages are a *RefusedError,
// too. A template that takes more steps or moves more data than any useful template needs ends with
// another error. If ctx is cancelled, Render ends with the error of ctx.
func (t *Template) Render(ctx context.Context, messages []Message, addGenerationPrompt bool) (string, error) {
	if len(messages) > maxMessages {
		return "", &RefusedError{fmt.Sprintf("the conversation has %d messages, at most %d are taken", len(messages), maxMessages)}
	}
	size := 0
	list := make([]value.Value, len(messages))
	for i, m := range messages {
		size += len(m.Role) + len(m.Content) + len(m.Name)
		fields := map[string]value.Value{"role": value.FromString(m.Role), "content": value.FromString(m.Content)}
		if m.Name != "" {
			fields["name"] = value.FromString(m.Name)
		}
		list[i] = value.FromMap(fields)
	}
	return t.render(ctx, size, map[string]value.Value{
		"messages": value.FromSlice(list), "add_generation_prompt": value.FromBool(addGenerationPrompt),
		"tools": value.None(), "documents": value.None(),
	})
}

// render renders the template with the variables and the special tokens. size is the number of
// bytes of the variables' texts.
func (t *Template) render(ctx context.Context, size int, variables map[string]value.Value) (string, error) {
	for name, text := range t.tokens {
		variables[name] = value.FromString(text)
	}
	m := newMeter(ctx, size, t.now())
	var out strings.Builder
	err := t.template.RenderToWriteCtx(context.WithValue(ctx, meterKey{}, m), variables, &out)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if refused := (*RefusedError)(nil); errors.As(m.err, &refused) {
		return "", refused
	}
	if m.err != nil {
		err = m.err
	}
	if err != nil {
		return "", fmt.Errorf("chat template in %s: %w", t.Source, plainError(err))
	}
	return out.String(), nil
}

// RefusedError is the error of a conversation that the template or this package refuses. Another
// conversation may have a prompt.
type RefusedError struct{ Msg string }

func (e *RefusedError) Error() string { return e.Msg }

const refusal = "the chat template refuses the conversation: "

const templateName = "chat_template"

// plainError returns minijinja's error without its internal names.
func plainError(err error) error {
	var e *minijinja.Error
	if !errors.As(err, &e) {
		return err
	}
	if e.Kind == minijinja.ErrOutOfFuel {
		return errSteps
	}
	if e.Span != nil {
		return fmt.Errorf("line %d: %s", e.Span.StartLine, e.Message)
	}
	return errors.New(e.Message)
}

// plainName is Template.Source of a model without a template.
const plainName = "plain"

// plainSource is the template of a model without a template, in the form that language models
// without tuning for conversations continue best.
const plainSource = `{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ message.content ~ '\n\n' }}
{%- elif message.role == 'assistant' -%}
{{ 'Assistant: ' ~ message.content | trim ~ '\n' }}
{%- else -%}
{{ (message.name or 'User') ~ ': ' ~ message.content ~ '\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ 'Assistant:' }}
{%- endif -%}`

// plainStops begin the next line of a plain conversation.
var plainStops = []string{"\nUser:", "\nAssistant:"}

// The files of a model that may hold chat templates, in the order of precedence.
const (
	templateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
	oldFile      = "chat_template.json"
)

// A Source is the text of a chat template. Name is "default" for the template of conversations;
// models may have others, for example "tool_use".
type Source struct{ Name, Text string }

// Sources reads the chat templates of a model and returns the name of their file. read returns the
// content of a file of the model, or fs.ErrNotExist. A model without a template has no sources.
func Sources(read func(name string) ([]byte, error)) (sources []Source, file string, err error) {
	raw, err := read(templateFile)
	if err == nil {
		return []Source{{"default", string(raw)}}, templateFile, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	for _, name := range []string{configFile, oldFile} {
		raw, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		if sources, err = parseSources(raw); err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		if len(sources) > 0 {
			return sources, name, nil
		}
	}
	return nil, "", nil
}

// parseSources reads chat_template: a text, or a list of texts with names.
func parseSources(raw []byte) ([]Source, error) {
	var file struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(jsonscan.Finite(raw), &file); err != nil {
		return nil, err
	}
	if len(file.Template) == 0 || string(file.Template) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(file.Template, &one) == nil {
		return []Source{{"default", one}}, nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(file.Template, &list); err != nil {
		return nil, errors.New("chat_template is neither a string nor a list of objects with name and template")
	}
	var sources []Source
	for _, t := range list {
		sources = append(sources, Source{t.Name, t.Template})
	}
	return sources, nil
}

// specialTokens reads the tokens that a template may name, for example bos_token, from
// tokenizer_config.json, else from special_tokens_map.json.
func specialTokens(read func(name string) ([]byte, error)) (map[string]string, error) {
	tokens := map[string]string{}
	for _, name := range []string{configFile, "special_tokens_map.json"} {
		raw, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var file map[string]json.RawMessage
		if err := json.Unmarshal(jsonscan.Finite(raw), &file); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for key, value := range file {
			if _, ok := tokens[key]; ok || !isTokenKey(key) {
				continue
			}
			if text, ok := tokenText(value); ok {
				tokens[key] = text
			}
		}
	}
	return tokens, nil
}

// isTokenKey reports whether a key like bos_token names a token; add_bos_token does not.
func isTokenKey(key string) bool {
	const suffix = "_token"
	return len(key) > len(suffix) && key[len(key)-len(suffix):] == suffix && key[:min(4, len(key))] != "add_"
}

// tokenText reads a token: a string, or an object with the member content.
func tokenText(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, string(raw) != "null"
	}
	var object struct{ Content *string }
	if json.Unmarshal(raw, &object) != nil || object.Content == nil {
		return "", false
	}
	return *object.Content, true
}
