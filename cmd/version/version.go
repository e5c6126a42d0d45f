// Package version is the command `gq version`: which build is this?
package version

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

func Command() *cli.Command {
	return &cli.Command{
		Name:      "version",
		Usage:     "show which build of gq this is",
		UsageText: "gq version\ngq version --json\n",
		Flags:     []cli.Flag{cmdline.JSON()},
		Action: cmdline.Exactly(func(c *cli.Context) error {
			if c.Bool("json") {
				return cmdline.PrintJSON(c.App.Writer, gq.Version())
			}
			_, err := fmt.Fprintln(c.App.Writer, "gq", gq.Version())
			return err
		}),
	}
}
