package gq

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/model/generate"
)

// RunOptions are the options of Run.
type RunOptions struct {
	generate.Options
	// Activations is the type of the inputs of quantized layers. Default (forward.Int8): as on the
	// device. A checkpoint runs in float32.
	Activations forward.Activations
	// Lora names adapters that are merged into a checkpoint, as in quantizer.Recipe: the merged
	// checkpoint takes temporary space. Default: none.
	Lora []string
	// Threads is how many workers run. Default (0): GOMAXPROCS. The text does not depend on it.
	Threads int
	// Progress is told how far the download of a remote model is. Default (nil): none.
	Progress Progress
	// Verify checks the checksums of all weights of a .gqf that the model uses before it runs.
	// Default: no weight is read in advance.
	Verify bool
}

// Run continues a prompt with the model at path: a .gqf file, a GGUF file, a checkpoint directory,
// or a remote name (see [Pull]): the model is downloaded first. Quantized tensors of a checkpoint
// run through gq's kernels if a .gqf file holds their codes, and in float32 otherwise; the
// checkpoint takes a temporary .gqf file. If ctx is cancelled or a callback fails, Run returns the
// error and the result so far.
func Run(ctx context.Context, path string, o RunOptions) (r *generate.Result, err error) {
	err = o.open(ctx, path, func(g *generate.Generator) error {
		r, err = g.Run(ctx, o.Options)
		return err
	})
	return r, err
}

// open opens the model at path, calls use, and closes the model.
func (o *RunOptions) open(ctx context.Context, path string, use func(g *generate.Generator) error) error {
	start := time.Now()
	if o.Verify && IsGGUF(path) {
		return optionf("verify", "needs a .gqf file: a .gguf file has no checksums")
	}
	from, err := resolveSource(ctx, path, true, stages{to: o.Progress})
	if err != nil {
		return err
	}
	defer from.Release()
	return withAdapters(ctx, from.Path, o.Lora, o.Threads, stages{to: o.Progress}, func(path string, _ *provenance.Provenance) error {
		return withModel(ctx, path, o.Threads, stages{}, func(m readable) error {
			defer memlimit.Lift()()
			g, err := generate.Open(m.path, generate.OpenOptions{View: m.view, Since: start, Threads: o.Threads, Activations: o.Activations, Verify: o.Verify, Name: from.Name})
			if err != nil {
				return err
			}
			defer g.Close()
			debug.FreeOSMemory() // memory that reading the tokenizer took
			return use(g)
		})
	})
}

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
