package cmdline

import (
	"os"

	"golang.org/x/sys/windows"
)

// enableEscapes makes a console interpret escape sequences, and reports whether it can. Consoles
// before Windows 10 cannot.
func enableEscapes(f *os.File) bool {
	console := windows.Handle(f.Fd())
	var mode uint32
	if windows.GetConsoleMode(console, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
