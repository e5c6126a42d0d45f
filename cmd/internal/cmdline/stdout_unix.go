//go:build !windows

package cmdline

import (
	"errors"
	"os"
	"syscall"
)

func isClosedPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// enableEscapes reports that terminals interpret escape sequences. Only on Windows a program has to
// enable that.
func enableEscapes(*os.File) bool { return true }
