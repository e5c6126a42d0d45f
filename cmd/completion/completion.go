// Package completion is the command `gq completion`: scripts with which shells complete gq's
// commands, flags, values of flags, and files.
package completion

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/suggest"
)

func Command() *cli.Command {
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
		Action: run,
	}
}

func run(c *cli.Context) error {
	shells, args := cmdline.Shells(), c.Args().Slice()
	if last := len(args) - 1; last > 0 && args[0] == "reply" { // to a script
		cmdline.Reply(c.App.Writer, c.App, args[1:last], strings.TrimPrefix(args[last], "="))
		return nil
	}
	if len(args) != 1 {
		return cmdline.Usagef("which shell? one of %s", strings.Join(shells, ", "))
	}
	err := cmdline.Completion(c.App.Writer, args[0])
	if err == cmdline.ErrShell {
		return &cmdline.UsageError{Err: suggest.Unknown("shell", c.Args().First(), shells)}
	}
	return err
}
