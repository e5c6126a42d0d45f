// Package version is the command `gq version`: which build is this?
package version

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// Command gives `gq version`.
func Command() *cli.Command {
	return &cli.Command{
		Name:      "version",
		Usage:     "show which build of gq this is",
		UsageText: "gq version\ngq version --json\n",
		Flags:     []cli.Flag{cmdline.JSON("version, commit and platform")},
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return cmdline.Usagef("gq version takes no arguments, got %d", c.NArg())
			}
			if c.Bool("json") {
				return cmdline.PrintJSON(c.App.Writer, gq.Version())
			}
			_, err := fmt.Fprintln(c.App.Writer, "gq", gq.Version())
			return err
		},
	}
}
