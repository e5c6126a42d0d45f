// Package completion is the command `gq completion`: scripts with which shells complete gq's
// commands, flags and files.
package completion

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/suggest"
)

// Command gives `gq completion`.
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
	shells := cmdline.Shells()
	if c.NArg() != 1 {
		return cmdline.Usagef("which shell? one of %s", strings.Join(shells, ", "))
	}
	err := cmdline.Completion(c.App.Writer, c.App, c.Args().First())
	if err == cmdline.ErrShell {
		return &cmdline.UsageError{Err: suggest.Unknown("shell", c.Args().First(), shells)}
	}
	return err
}
