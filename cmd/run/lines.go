package run

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// lines reads lines without their ends.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{bufio.NewReader(r)} }

// next returns a line; the last one may have no end.
func (l *lines) next(bool) (string, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxPrompt {
			return "", fmt.Errorf("a line has more than %d bytes", maxPrompt)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil && (err != io.EOF || len(line) == 0) {
			return "", err
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"), nil
	}
}
