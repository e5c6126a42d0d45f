package cmdline

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/quantizer"
)

// A UsageError says that a command was used wrongly: exit status 2.
type UsageError struct {
	Err error
}

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// ExitCode makes a UsageError a cli.ExitCoder.
func (e *UsageError) ExitCode() int { return 2 }

// A StatusError is a failure that states its exit status.
type StatusError struct {
	Err    error
	Status int
}

func (e *StatusError) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e *StatusError) Unwrap() error { return e.Err }

// ExitCode makes a StatusError a cli.ExitCoder.
func (e *StatusError) ExitCode() int { return e.Status }

// A SignalError is the cause of a context that a signal has cancelled. The exit status is 128 plus
// the number of the signal, as in a shell: 130 after Ctrl-C.
type SignalError struct {
	Signal syscall.Signal
}

func (e *SignalError) Error() string { return e.Signal.String() }

// Unwrap: loops that return the cause of their end were cancelled.
func (e *SignalError) Unwrap() error { return context.Canceled }

// NotifyContext returns a context that the first of these signals cancels; the cause is a
// *SignalError. A second signal ends the process, as if NotifyContext had not been called.
func NotifyContext(ctx context.Context, signals ...os.Signal) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	received := make(chan os.Signal, 1)
	signal.Notify(received, signals...)
	go func() {
		s := <-received
		signal.Stop(received)
		number, _ := s.(syscall.Signal)
		cancel(&SignalError{number})
	}()
	return ctx
}

// Usagef returns a *UsageError with a formatted text, as fmt.Errorf does.
func Usagef(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// Run runs app with args (os.Args: the program's name first), reports an error on
// app.ErrWriter and returns the exit status. It changes app by the rules of the package
// comment, so app must not be used again.
func Run(ctx context.Context, app *cli.App, args []string) int {
	req := parseRequest(app, args)
	if app.Writer == nil {
		app.Writer = os.Stdout
	}
	pipe := &pipeWriter{w: app.Writer}
	out := &output{bufio.NewWriterSize(pipe, 1<<16), pipe}
	app.Writer = out
	app.HideHelp = true // gq writes its own help, see request.help
	if app.ErrWriter == nil {
		app.ErrWriter = os.Stderr
	}
	// Exit statuses are given by the return value, not by os.Exit in the middle.
	app.ExitErrHandler = func(*cli.Context, error) {}
	// A comma in a value (--rule a=4,32) is part of it.
	app.DisableSliceFlagSeparator = true
	app.OnUsageError = func(c *cli.Context, err error, _ bool) error {
		req.path = c.Command.HelpName // may be above the command that args name
		return flagError(err.Error(), c.Command.Flags)
	}
	prepare(app.Commands, app.OnUsageError)

	var err error
	switch {
	case req.help:
		err = help(app.Writer, app, req.command, req.path, req.all, min(max(columns(os.Stdout), 40), 100))
	case req.unknown != "":
		err = Usagef("unknown command %q%s", req.unknown, suggest.DidYouMean(req.unknown, names(req.commands())))
	default:
		err = app.RunContext(ctx, req.args)
	}
	// Output that a command printed before it failed is a result, too.
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if err == nil {
		return 0
	}
	code, text := verdict(ctx, err)
	if _, failed := errors.AsType[*StatusError](err); code == 2 && !failed {
		text += "; run " + req.path + " --help"
	}
	fmt.Fprintf(app.ErrWriter, "%s: %s\n", app.Name, Printable(hideCredentials(text, args)))
	return code
}

// hideCredentials removes passwords and signatures of URLs among the arguments from an error that
// quotes them.
func hideCredentials(text string, args []string) string {
	for _, arg := range args {
		if _, value, found := strings.Cut(arg, "="); found && strings.HasPrefix(arg, "-") {
			arg = value
		}
		if shown := remote.Redact(arg); shown != arg {
			text = strings.ReplaceAll(text, arg, shown)
		}
	}
	return text
}

// verdict gives the exit status and the text of an error.
func verdict(ctx context.Context, err error) (code int, text string) {
	text = err.Error()
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		text = "interrupted"
		if r, ok := errors.AsType[*gq.ResumeError](err); ok {
			text = strings.Join(append([]string{text}, r.Hints...), "; ")
		}
		code = 128 + int(syscall.SIGINT)
		if s, ok := errors.AsType[*SignalError](context.Cause(ctx)); ok {
			code = 128 + int(s.Signal)
		}
		return code, text
	}
	if coder, ok := errors.AsType[cli.ExitCoder](err); ok {
		return coder.ExitCode(), text
	}
	if e, ok := errors.AsType[*gq.OptionError](err); ok {
		if e.Option != "" && text == e.Error() {
			text = "--" + text // a recipe spells options without dashes
		}
		return 2, text
	}
	if _, ok := errors.AsType[*quantizer.RequestError](err); ok {
		return 2, text
	}
	if _, ok := errors.AsType[*accuracy.GateError](err); ok {
		return 2, text
	}
	if _, ok := errors.AsType[*gq.GateNotMetError](err); ok {
		return 3, text
	}
	return 1, text
}

// Printable escapes characters that a terminal does not show.
func Printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) || r == '\n' {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

func prepare(commands []*cli.Command, onUsageError cli.OnUsageErrorFunc) {
	for _, c := range commands {
		c.OnUsageError = onUsageError
		c.HideHelp = true
		for _, f := range c.Flags {
			if b, ok := f.(*cli.BoolFlag); ok {
				b.DisableDefaultText = true // "(default: false)" goes without saying
			}
		}
		prepare(c.Subcommands, onUsageError)
	}
}

// flagError rewrites an error of package flag or cli in gq's words. known are the flags that exist.
func flagError(text string, known []cli.Flag) error {
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		hint := ""
		if len(name) > 1 {
			list := []string{"--help", "--help-all"}
			for _, f := range known {
				for _, name := range f.Names() {
					list = append(list, dashed(name))
				}
			}
			hint = suggest.DidYouMean(dashed(name), list)
		}
		return Usagef("unknown flag %s%s", dashed(name), hint)
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return Usagef("flag %s needs a value", dashed(name))
	}
	if names, ok := strings.CutPrefix(text, "Cannot use two forms of the same flag: "); ok {
		a, b, _ := strings.Cut(names, " ")
		return Usagef("%s and %s are the same flag: give one of them", dashed(a), dashed(b))
	}
	// `invalid value "x" for flag -bits: parse error`, where x may be anything, and
	// `invalid boolean value "x" for -json: parse error`.
	if strings.HasPrefix(text, "invalid ") {
		for _, between := range []string{" for flag -", " for -"} {
			if i := strings.LastIndex(text, between); i >= 0 {
				if name, why, ok := strings.Cut(text[i+len(between):], ": "); ok {
					return Usagef("%s for flag %s: %s", text[:i], dashed(name), expected(known, name, why))
				}
			}
		}
	}
	return Usagef("%s", text)
}

// expected says which values the flag takes, if why says only that the value was not understood.
func expected(known []cli.Flag, name, why string) string {
	if why != "parse error" {
		return why
	}
	for _, f := range known {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *cli.IntFlag, *cli.Int64Flag:
			return "expected an integer"
		case *cli.UintFlag, *cli.Uint64Flag:
			return "expected an integer of 0 or more"
		case *cli.Float64Flag:
			return "expected a number"
		case *cli.DurationFlag:
			return "expected a time with its unit, such as 30s or 10m"
		case *cli.BoolFlag:
			return "expected true or false"
		}
	}
	return why
}

// dashed returns the usual spelling of the flag called name.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// output is the App.Writer that Run sets.
type output struct {
	*bufio.Writer
	pipe *pipeWriter
}

// Flush writes buffered output of App.Writer at once, for results that appear piece by piece. It
// reports whether standard output is still read.
func Flush(w io.Writer) (read bool, err error) {
	o, ok := w.(*output)
	if !ok {
		return true, nil
	}
	err = o.Flush()
	return !o.pipe.closed, err
}

// A pipeWriter is standard output whose reader may close it early, as head does. It then drops the
// rest of the output without an error, so the exit status does not change. Other errors remain
// errors.
type pipeWriter struct {
	w      io.Writer
	closed bool
}

func (p *pipeWriter) Write(b []byte) (int, error) {
	if p.closed {
		return len(b), nil
	}
	n, err := p.w.Write(b)
	if err != nil && isClosedPipe(err) {
		p.closed = true
		return len(b), nil
	}
	return n, err
}

// Color reports whether output to w may be coloured. w, or the file below the App.Writer that Run
// sets, must be a terminal that interprets escape sequences, and the environment must not refuse
// colours (NO_COLOR, see no-color.org, or TERM=dumb).
func Color(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.pipe.w
	}
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())) && enableEscapes(f)
}
