package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/model/generate"
)

// talk runs a conversation on the terminal, or with messages from standard input.
func talk(c *cli.Context, path string, o gq.RunOptions) error {
	for _, name := range []string{"prompt", "prompt-file", "tokens", "no-bos"} {
		if c.IsSet(name) {
			return cmdline.Usagef("--%s does not go with --chat", name)
		}
	}
	system := c.String("system")
	if !utf8.ValidString(system) {
		return cmdline.Usagef("--system is not UTF-8")
	}
	if !c.IsSet("max-tokens") {
		o.MaxTokens = gq.ChatMaxTokens
	}
	return gq.Chat(c.Context, path, o, func(conversation *gq.Conversation) error {
		t := &talker{c: c, conversation: conversation}
		t.system(system)
		if !c.Bool("quiet") {
			if source := conversation.Template(); source == "plain" {
				fmt.Fprintln(c.App.ErrWriter, "The model has no chat template: it continues lines that begin with User: and Assistant:.")
			} else {
				fmt.Fprintf(c.App.ErrWriter, "Chat template from %s.\n", source)
			}
			fmt.Fprintf(c.App.ErrWriter, "At most %d tokens in the conversation, %d in an answer. /help lists commands.\n", conversation.Context(), o.MaxTokens)
		}
		var err error
		if c.App.Reader == os.Stdin && isTerminal(os.Stdin) && !c.Bool("json") {
			err = t.interactive()
		} else {
			answer := func(message string) error { return t.answer(c.Context, newWriter(c), message) }
			err = t.converse(readLines(c.App.Reader), answer, func(err error) error { return err })
		}
		if errors.Is(err, errNobody) {
			return nil
		}
		return err
	})
}

type talker struct {
	c            *cli.Context
	conversation *gq.Conversation
	console      *console // nil without a terminal
}

const chatHelp = `/system TEXT  give the model instructions; without TEXT there are none
/clear        forget the conversation, not the instructions
/help         list the commands
A line that begins with a space is a message, even if a slash follows.
A line that ends with \ goes on in the next one. Ctrl-C stops an answer, Ctrl-D ends.
`

// converse reads messages, line by line with next, until the input ends. It runs commands and
// passes other messages to answer. The error of a refused message, or of a failed answer, goes to
// failed. An error of next or of failed ends the conversation.
func (t *talker) converse(next func(more bool) (string, error), answer func(message string) error, failed func(err error) error) error {
	for {
		message, err := readMessage(next)
		if err == io.EOF {
			return nil
		}
		if _, refused := errors.AsType[*refusedMessage](err); err != nil && !refused {
			return err
		}
		command := false
		if err == nil {
			command, err = t.command(message)
		}
		if err == nil && !command {
			err = answer(message)
		}
		if err != nil {
			err = failed(err)
		}
		if err != nil {
			return err
		}
	}
}

// answer sends a message to the model, and prints the answer and its time.
func (t *talker) answer(ctx context.Context, w *writer, message string) error {
	text := w.text
	if t.c.Bool("json") {
		text = nil
	}
	r, err := t.conversation.Ask(ctx, message, text)
	if r == nil || err != nil && r.Stopped != generate.Interrupted {
		return err
	}
	if t.c.Bool("json") {
		return errors.Join(cmdline.PrintJSON(w.w, r), err)
	}
	if failed := w.newline(); failed != nil {
		return failed
	}
	if !t.c.Bool("quiet") {
		t.stats(r)
	}
	return err
}

// stats prints one line, or with --verbose what gq run prints.
func (t *talker) stats(r *generate.Result) {
	var b strings.Builder
	if t.c.Bool("verbose") {
		printSummary(&b, r)
	} else {
		fmt.Fprintf(&b, "[%d tokens", len(r.IDs))
		if r.DecodeTokensPerSecond > 0 {
			fmt.Fprintf(&b, " at %.1f tokens/s", r.DecodeTokensPerSecond)
		}
		fmt.Fprintf(&b, ", the first after %s", seconds(r.FirstTokenSeconds))
		if r.Stopped != generate.EndOfText && r.Stopped != generate.StopString {
			fmt.Fprintf(&b, "; %s", ended(r))
		}
		used := min(len(r.PromptIDs)+len(r.IDs), t.conversation.Context()) // the last token needs no room
		fmt.Fprintf(&b, "; %d of %d tokens of the context]\n", used, t.conversation.Context())
	}
	fmt.Fprint(t.errWriter(), b.String())
}

// commands are the commands of a conversation. isCommand matches a line that looks like a command.
var (
	commands  = []string{"/system", "/clear", "/help"}
	isCommand = regexp.MustCompile(`^/[A-Za-z]+$`)
)

// command runs a command and reports whether the message is one.
func (t *talker) command(message string) (bool, error) {
	name, text, _ := strings.Cut(strings.TrimRight(message, " \t\r\n"), " ")
	switch name {
	case "":
		return strings.TrimSpace(text) == "", nil // an empty line asks nothing
	case "/help":
		fmt.Fprint(t.errWriter(), chatHelp)
	case "/clear":
		t.conversation.Messages = t.instructions()
	case "/system":
		t.system(strings.TrimSpace(text))
	default:
		if !isCommand.MatchString(name) {
			return false, nil
		}
		return true, refusedf("unknown command %s%s; to send it as a message, begin with a space", name, suggest.DidYouMean(name, commands))
	}
	return true, nil
}

func (t *talker) instructions() []chat.Message {
	m := t.conversation.Messages
	if len(m) > 0 && m[0].Role == "system" {
		return m[:1:1]
	}
	return nil
}

func (t *talker) system(text string) {
	rest := t.conversation.Messages[len(t.instructions()):]
	t.conversation.Messages = nil
	if text != "" {
		t.conversation.Messages = []chat.Message{{Role: "system", Content: text}}
	}
	t.conversation.Messages = append(t.conversation.Messages, rest...)
}

func (t *talker) errWriter() io.Writer {
	if t.console != nil {
		return newlines(t.c.App.ErrWriter, os.Stderr)
	}
	return t.c.App.ErrWriter
}

// refusedMessage is the error of a message that is not taken. The next message may be.
type refusedMessage struct{ why string }

func (e *refusedMessage) Error() string { return e.why }

func refusedf(format string, args ...any) error { return &refusedMessage{fmt.Sprintf(format, args...)} }

// readMessage joins lines that end with a backslash.
func readMessage(next func(more bool) (string, error)) (string, error) {
	var message strings.Builder
	for more := false; ; more = true {
		line, err := next(more)
		if err != nil {
			return "", err
		}
		before, goesOn := strings.CutSuffix(line, `\`)
		message.WriteString(before)
		if message.Len() > maxPrompt {
			return "", refusedf("a message has more than %d bytes", maxPrompt)
		}
		if !goesOn {
			break
		}
		message.WriteByte('\n')
	}
	if !utf8.ValidString(message.String()) {
		return "", refusedf("the message is not UTF-8")
	}
	return message.String(), nil
}
