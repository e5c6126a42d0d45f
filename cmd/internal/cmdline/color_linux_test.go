package cmdline

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal and returns the side that a program writes to.
func terminal(t *testing.T) *os.File {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	t.Cleanup(func() { control.Close() })
	fd := int(control.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	side, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("the pseudo-terminal has no name here: ", err)
	}
	t.Cleanup(func() { side.Close() })
	return side
}

func TestColor(t *testing.T) {
	tty := terminal(t)
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer pipe.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	wrapped := func(w io.Writer) io.Writer { // as Run makes App.Writer
		p := &pipeWriter{w: w}
		return &output{bufio.NewWriter(p), p}
	}
	for _, tt := range []struct {
		name          string
		w             io.Writer
		noColor, term string
		want          bool
	}{
		{"terminal", tty, "", "xterm", true},
		{"App.Writer on a terminal", wrapped(tty), "", "xterm", true},
		{"NO_COLOR", wrapped(tty), "1", "xterm", false},
		{"dumb terminal", wrapped(tty), "", "dumb", false},
		{"pipe", wrapped(pipe), "", "xterm", false},
		{"file", wrapped(file), "", "xterm", false},
		{"memory", io.Discard, "", "xterm", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", tt.noColor)
			t.Setenv("TERM", tt.term)
			if got := Color(tt.w); got != tt.want {
				t.Errorf("Color is %v, want %v", got, tt.want)
			}
		})
	}
}
