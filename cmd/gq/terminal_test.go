//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// terminal is gq on a pseudo-terminal.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	tty    *os.File
	screen bytes.Buffer // everything that was shown
	seen   int          // the end of the text that until found
}

// onTerminal starts gq.
func onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	if testing.Short() {
		t.Skip("a process on a terminal, with the same Go code on every CPU")
	}
	cmd := exec.Command("gq", args...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() { timer.Stop(); tty.Close() })
	return &terminal{t: t, cmd: cmd, tty: tty}
}

// until reads until the screen shows a text, after the text of the call before. It returns what is
// shown between the two.
func (s *terminal) until(want string) string {
	s.t.Helper()
	for {
		if before, _, ok := strings.Cut(s.screen.String()[s.seen:], want); ok {
			s.seen += len(before) + len(want)
			return before
		}
		buf := make([]byte, 1024)
		n, err := s.tty.Read(buf)
		s.screen.Write(buf[:n])
		if err != nil {
			s.t.Fatalf("%v, expected %q on\n%q", err, want, s.screen.String())
		}
	}
}

func (s *terminal) keys(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// end presses Ctrl-D.
func (s *terminal) end() {
	s.t.Helper()
	s.keys("\x04")
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("%v on\n%q", err, s.screen.String())
	}
	if text := s.screen.String(); strings.Contains(strings.ReplaceAll(text, "\r\n", ""), "\n") {
		s.t.Errorf("a line does not begin at the left:\n%q", text)
	}
}

// TestTerminal talks with gq run --chat on a pseudo-terminal: lines are edited, pasted lines are
// one message, Ctrl-C stops an answer, and Ctrl-D ends.
func TestTerminal(t *testing.T) {
	s := onTerminal(t, "run", "../../testdata/books1.3M-bf16", "--chat", "--ignore-eos", "--temperature", "0")
	s.until("continues lines that begin with User:")
	s.until("> ")
	s.keys("not sent\x03/help\r")
	s.until("/system TEXT")
	s.until("> ")
	s.keys("one \\\r")
	s.until("… ")
	s.keys("two\r")
	s.until("\r\n")
	s.until(" ") // an answer that is stopped before its first token has no figures
	s.keys("\x03")
	s.until("tokens of the context]")
	s.until("> ")
	s.keys("/clear\r")
	s.until("> ")
	s.keys("\x1b[200~" + strings.Repeat("a pasted line\n", 60) + "end\x1b[201~\r")
	s.until("1 messages: the prompt has ")
	s.until("the context is 256")
	s.until("/clear forgets the conversation")
	s.until("> ")
	s.keys("/clear\r")
	s.until("> ")
	// Nothing of a paste with a long line is asked.
	s.keys("\x1b[200~begin\n" + strings.Repeat("x", 5000) + "\nrest\nend\x1b[201~\r")
	s.until("a line of 5000 characters or more is not taken")
	s.keys("/help\r")
	if between := s.until("/system TEXT"); strings.Contains(between, "tokens of the context]") {
		t.Errorf("the rest of a refused paste is answered:\n%q", between)
	}
	s.until("> ")
	s.end()
}

// TestTerminalRefused: an error has words from the model's file. Those reach no terminal as control
// sequences.
func TestTerminalRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../testdata/books1.3M-bf16")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{{ raise_exception('\x1b]0;owned\x07') }}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := onTerminal(t, "run", dir, "--chat")
	s.until("> ")
	s.keys("Hello\r")
	s.until("the chat template refuses the conversation: ")
	if shown := s.until("> "); !strings.Contains(shown, `\x1b]0;owned\a`) {
		t.Errorf("the refusal shows as %q", shown)
	}
	s.end()
}
