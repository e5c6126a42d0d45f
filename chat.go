package gq

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/model/generate"
)

// ChatMaxTokens is the default for MaxTokens of a Chat.
const ChatMaxTokens = 1024

// A Conversation is a conversation with a model. It keeps the keys and values of its tokens, so
// that each answer computes the new messages only.
type Conversation struct {
	// Messages are the messages so far. The caller may change them between two answers.
	Messages []chat.Message

	engine    *generate.Engine
	generator *generate.Generator
	template  *chat.Template
	options   generate.Options
}

// Chat opens the model at path, as Run does, and calls talk with an empty conversation. Prompt,
// PromptIDs and NoBOS of the options are not used: the model's chat template decides. Context is
// the most tokens of the conversation; default as for generate.EngineOptions. MaxTokens is the most
// tokens of an answer; default ChatMaxTokens.
func Chat(ctx context.Context, path string, o RunOptions, talk func(c *Conversation) error) error {
	return o.open(ctx, path, func(g *generate.Generator) (err error) {
		c := &Conversation{generator: g, options: o.Options}
		if c.template, err = chat.Open(g.Asset); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if c.engine, err = g.NewEngine(generate.EngineOptions{Context: o.Context, Parallel: 1, Queue: -1}); err != nil {
			return err
		}
		defer c.engine.Close()
		if c.options.MaxTokens == 0 {
			c.options.MaxTokens = ChatMaxTokens
		}
		c.options.Stop = slices.Concat(c.options.Stop, c.template.Stops())
		return talk(c)
	})
}

// Template says where the chat template is from: a file of the model, or "plain" for a model that
// has none.
func (c *Conversation) Template() string { return c.template.Source }

// Context returns the most tokens of the conversation.
func (c *Conversation) Context() int { return c.engine.Context() }

// Ask adds a message of the user and the model's answer. text is called with each new piece of the
// answer.
//
// If ctx is cancelled, Ask returns the error and the Result so far, and the conversation has the
// answer as far as it came. With other errors the conversation stays as it was; a conversation that
// has become too long is a *generate.ContextError, a conversation that the template refuses is a
// *chat.RefusedError.
func (c *Conversation) Ask(ctx context.Context, message string, text func(piece string) error) (*generate.Result, error) {
	messages := append(slices.Clone(c.Messages), chat.Message{Role: "user", Content: message})
	ids, err := c.template.Encode(ctx, c.generator.Tokenizer(), messages, true)
	if err != nil {
		return nil, err
	}
	o := c.options
	o.PromptIDs, o.Text = ids, text
	r, err := c.engine.Run(ctx, o)
	if _, full := errors.AsType[*generate.ContextError](err); full {
		err = fmt.Errorf("%d messages: %w", len(messages), err)
	}
	if r == nil {
		return nil, err
	}
	if err == nil || r.Stopped == generate.Interrupted {
		c.Messages = append(messages, chat.Message{Role: "assistant", Content: r.Text})
	}
	return r, err
}
