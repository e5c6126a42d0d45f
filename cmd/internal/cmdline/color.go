package cmdline

import (
	"io"
	"os"

	"golang.org/x/term"
)

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
