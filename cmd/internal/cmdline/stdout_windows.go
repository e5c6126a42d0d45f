package cmdline

import (
	"errors"

	"golang.org/x/sys/windows"
)

func isClosedPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
