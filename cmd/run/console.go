package run

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/model/generate"
	"golang.org/x/term"
)

// Keys that the console handles itself.
const (
	ctrlC = 3
	ctrlU = 21 // removes the line that is being edited
)

// A console is a terminal in raw mode, in which all keys arrive as bytes: Ctrl-C is one of them,
// not a signal. One goroutine reads it all the time.
type console struct {
	ctx     context.Context
	input   chan []byte // closed at the end of the input
	pending []byte      // read, but not taken by an editor
	screen  *os.File    // the editor writes here
	lines   *term.Terminal
}

func (t *talker) interactive() error {
	fd := int(os.Stdin.Fd())
	state, err := term.MakeRaw(fd)
	if err != nil {
		return err
	}
	defer term.Restore(fd, state)
	k := &console{ctx: t.c.Context, input: make(chan []byte), screen: os.Stdout}
	if !isTerminal(os.Stdout) {
		k.screen = os.Stderr
	}
	t.console = k
	k.lines = term.NewTerminal(k, "")
	k.lines.SetBracketedPasteMode(true)
	defer k.lines.SetBracketedPasteMode(false)
	go k.read()
	err = t.converse(k.next, t.stoppable, t.report)
	if err == nil {
		fmt.Fprint(newlines(k.screen, k.screen), "\n")
	}
	return err
}

func (t *talker) report(err error) error {
	if t.c.Context.Err() != nil || errors.Is(err, errNobody) {
		return err
	}
	if errors.Is(err, context.Canceled) { // Ctrl-C stopped the answer
		return nil
	}
	hint := ""
	if _, full := errors.AsType[*generate.ContextError](err); full {
		hint = "; /clear forgets the conversation"
	}
	// A template's refusal has words from the model's file.
	fmt.Fprintf(t.errWriter(), "%s%s\n", cmdline.Printable(err.Error()), hint)
	return nil
}

// stoppable answers until the answer ends or Ctrl-C is pressed. Other keys wait for the next line.
func (t *talker) stoppable(message string) error {
	w := newWriter(t.c)
	w.w = newlines(w.w, os.Stdout)
	ctx, cancel := context.WithCancel(t.c.Context)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- t.answer(ctx, w, message) }()
	input := t.console.input
	for {
		select {
		case err := <-done:
			return err
		case keys, ok := <-input:
			if !ok {
				input = nil
				continue
			}
			if i := bytes.LastIndexByte(keys, ctrlC); i >= 0 {
				cancel()
				t.console.pending, keys = nil, keys[i+1:]
			}
			t.console.pending = append(t.console.pending, keys...)
		}
	}
}

func (k *console) read() {
	defer close(k.input)
	for {
		buf := make([]byte, 1024)
		n, err := os.Stdin.Read(buf)
		if n > 0 {
			select {
			case k.input <- buf[:n]:
			case <-k.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Read returns the typed bytes to the editor. Ctrl-C removes the line.
func (k *console) Read(p []byte) (int, error) {
	if len(k.pending) == 0 {
		select {
		case keys, ok := <-k.input:
			if !ok {
				return 0, io.EOF
			}
			k.pending = keys
		case <-k.ctx.Done():
			return 0, k.ctx.Err()
		}
	}
	n := copy(p, k.pending)
	k.pending = k.pending[n:]
	for i := range p[:n] {
		if p[i] == ctrlC {
			p[i] = ctrlU
		}
	}
	return n, nil
}

// Write prints the editor's output.
func (k *console) Write(p []byte) (int, error) { return k.screen.Write(p) }

// longestLine is the length in characters from which x/term ignores further ones.
const longestLine = 4096

// next reads a line. Pasted lines are one message, and if one of them is too long, none is taken.
func (k *console) next(more bool) (string, error) {
	if width, height, err := term.GetSize(int(k.screen.Fd())); err == nil && width > 0 && height > 0 {
		k.lines.SetSize(width, height)
	}
	k.lines.SetPrompt("> ")
	if more {
		k.lines.SetPrompt("… ")
	}
	var message strings.Builder
	var long error // a line is too long: the editor may have dropped its end
	for {
		line, err := k.lines.ReadLine()
		if n := utf8.RuneCountInString(line); n >= longestLine {
			long = refusedf("a line of %d characters or more is not taken: break it with \\, or give it on standard input", n)
		}
		message.WriteString(line)
		if err != term.ErrPasteIndicator {
			if long != nil && err == nil {
				err = long
			}
			return message.String(), err
		}
		message.WriteByte('\n')
		k.lines.SetPrompt("… ")
	}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// newlines returns a writer of text to w, a writer to the file. For a terminal in raw mode, which
// moves only down at a newline, a carriage return is written too.
func newlines(w io.Writer, file *os.File) io.Writer {
	if !isTerminal(file) {
		return w
	}
	return &rawWriter{w}
}

type rawWriter struct{ w io.Writer }

func (r *rawWriter) Write(p []byte) (int, error) {
	if _, err := r.w.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	_, err := cmdline.Flush(r.w)
	return len(p), err
}

// readLines returns a function for the lines of r, without their ends. The last may have no end.
func readLines(r io.Reader) func(more bool) (string, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxPrompt+len("\r\n"))
	return func(bool) (string, error) {
		switch {
		case lines.Scan():
			return lines.Text(), nil
		case lines.Err() == bufio.ErrTooLong:
			return "", fmt.Errorf("a line has more than %d bytes", maxPrompt)
		case lines.Err() != nil:
			return "", lines.Err()
		}
		return "", io.EOF
	}
}
