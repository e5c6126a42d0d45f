package cmdline

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
)

// Reporter shows the progress and the log of a job on standard error. With --quiet it is nil and
// shows nothing.
func Reporter(c *cli.Context) gq.Progress {
	if d := NewDisplay(os.Stderr, c.Bool("quiet")); d != nil {
		return d
	}
	return nil
}
