package cmdline

import "io"

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
