// Package export is the command `gq export`: a .gqf file becomes a .gguf file with the same codes.
package export

import (
	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
)

// Command gives `gq export`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "export",
		Usage: "write the model in a .gqf file as a .gguf file for llama.cpp, without changing a code",
		UsageText: `# a file of gq quantize --target gguf, for llama.cpp
gq export model.gqf -o model.gguf
gq export model.gqf --split 2GB -o model.gguf
`,
		ArgsUsage: "FILE",
		Description: "A tensor that no type of GGUF files holds exactly is an error that says what to quantize with.\n" +
			"gq quantize SRC -o model.gguf writes a .gguf file at once, with K types and minima too.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write; it is replaced only when the new one is complete"},
		}, append(cmdline.GGUFFlags(""),
			cmdline.Threads(),
			&cli.BoolFlag{Name: "dry-run", Usage: "print the plan and the exact size, write nothing"},
			cmdline.JSON("the plan or the summary"),
			cmdline.Quiet(),
		)...),
		Action: run,
	}
}

func run(c *cli.Context) error {
	if c.NArg() != 1 {
		return cmdline.Usagef("gq export wants one .gqf file, got %d", c.NArg())
	}
	if !c.Bool("dry-run") && c.String("output") == "" {
		return cmdline.Usagef("where to? name a file with -o OUT.gguf")
	}
	opts := gq.ExportOptions{Threads: c.Int("threads"), Progress: cmdline.Reporter(c)}
	var err error
	if opts.GGUF, err = cmdline.GGUFOptions(c); err != nil {
		return err
	}
	src := c.Args().First()
	if c.Bool("dry-run") {
		plan, err := gq.PlanExport(src, opts)
		if err != nil {
			return err
		}
		return filereport.Plan(c, plan)
	}
	report, err := gq.Export(c.Context, src, c.String("output"), opts)
	if err != nil {
		return err
	}
	return filereport.Report(c, report)
}
