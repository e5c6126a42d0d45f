// Package man is the command `gq man`: the manual page of this build.
package man

import (
	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

func Command() *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "print the manual page, gq(1)",
		Description: "The page is made of the same definitions as --help and --help-all.",
		UsageText:   "gq man | man -l -\ngq man > ~/.local/share/man/man1/gq.1\n",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "markdown", Usage: "print the same in Markdown, docs/CLI.md"}},
		Action: cmdline.Exactly(func(c *cli.Context) error {
			if c.Bool("markdown") {
				return cmdline.Markdown(c.App.Writer, c.App)
			}
			return cmdline.Man(c.App.Writer, c.App)
		}),
	}
}
