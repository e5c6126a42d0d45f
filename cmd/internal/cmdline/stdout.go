package cmdline

import (
	"bufio"
	"io"
	"os"

	"golang.org/x/term"
)

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
