package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
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
