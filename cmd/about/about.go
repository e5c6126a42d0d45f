// Package about has the commands with which gq tells about itself: `gq completion`, scripts with
// which shells complete commands, flags, values of flags, and files; `gq man`, the manual page of
// this build; `gq version`.
package about

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/suggest"
)

func Completion() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for a shell",
		ArgsUsage: "bash|zsh|fish|powershell",
		UsageText: `# in ~/.bashrc
source <(gq completion bash)
# in a directory of zsh's $fpath
gq completion zsh > ~/.zsh/completions/_gq
gq completion fish > ~/.config/fish/completions/gq.fish
# in the profile that $PROFILE names
gq completion powershell | Out-String | Invoke-Expression
`,
		Action: complete,
	}
}

func complete(c *cli.Context) error {
	shells, args := cmdline.Shells(), c.Args().Slice()
	if last := len(args) - 1; last > 0 && args[0] == "reply" { // to a script
		cmdline.Reply(c.App.Writer, c.App, args[1:last], strings.TrimPrefix(args[last], "="))
		return nil
	}
	if len(args) != 1 {
		return cmdline.Usagef("which shell? one of %s", strings.Join(shells, ", "))
	}
	if !slices.Contains(shells, args[0]) {
		return &cmdline.UsageError{Err: suggest.Unknown("shell", args[0], shells)}
	}
	return cmdline.Completion(c.App.Writer, args[0])
}

func Man() *cli.Command {
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

func Version() *cli.Command {
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
