package cmdline

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
)

// Reporter shows the progress and the log of a job on standard error; nil, which shows nothing, with --quiet.
func Reporter(c *cli.Context) gq.Progress {
	if c.Bool("quiet") {
		return nil
	}
	return reporter{c}
}

type reporter struct{ c *cli.Context }

func (r reporter) Stage(s gq.Stage) (add func(n int64), end func()) {
	unit := s.Unit
	if unit == "bytes" {
		unit = ""
	}
	bar := NewCount(os.Stderr, s.Total, s.Name, unit, false)
	return bar.Add, bar.Finish
}

func (r reporter) Log(line string) { fmt.Fprintln(r.c.App.ErrWriter, line) }
