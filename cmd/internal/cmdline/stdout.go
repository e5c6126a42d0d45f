package cmdline

import (
	"bufio"
	"io"
)

// output is what Run makes of App.Writer.
type output struct {
	*bufio.Writer
	pipe *pipeWriter
}

// Flush has what was written to App.Writer go out now, for results that come bit by bit.
// It reports whether somebody reads them still.
func Flush(w io.Writer) (read bool, err error) {
	o, ok := w.(*output)
	if !ok {
		return true, nil
	}
	err = o.Flush()
	return !o.pipe.closed, err
}

// A pipeWriter is standard output for a reader that may have enough before the end,
// as head does: what it no longer takes is dropped, and that is no error. The command
// goes on, so its exit status is what it would have been. Other errors stay errors.
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
