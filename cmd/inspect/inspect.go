// Package inspect is the command `gq inspect`: what a .gqf file or a checkpoint holds.
package inspect

import (
	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// Command gives `gq inspect`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "inspect",
		Usage: "show what a .gqf file or a safetensors checkpoint holds",
		UsageText: `gq inspect model.gqf
# scales, a histogram of codes and the first weights
gq inspect model.gqf --tensor lm_head.weight
gq inspect Llama-3.2-1B --json
`,
		ArgsUsage: "FILE|DIR",
		Description: "Only directories and metadata are read, but for --tensor. Nothing is checked beyond that:\n" +
			"gq verify does.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "tensor", Usage: "show one tensor of a .gqf file, by any of its `NAME`s: packed header, scales, codes, first weights"},
			&cli.IntFlag{Name: "slice", Usage: "with --tensor: `NUMBER` of an expert of a fused tensor, from 0"},
			cmdline.JSON("all of it"),
		},
		Action: run,
	}
}

func run(c *cli.Context) error {
	if c.NArg() != 1 {
		return cmdline.Usagef("gq inspect wants one file or directory, got %d", c.NArg())
	}
	if c.IsSet("slice") && !c.IsSet("tensor") {
		return cmdline.Usagef("--slice belongs to --tensor")
	}
	path, w := c.Args().First(), c.App.Writer
	if c.IsSet("tensor") {
		r, err := gq.InspectTensor(path, c.String("tensor"), c.Int("slice"))
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return cmdline.PrintJSON(w, r)
		}
		return printTensor(w, r)
	}
	r, err := gq.Inspect(path)
	switch {
	case err != nil:
		return err
	case c.Bool("json") && r.File != nil:
		return cmdline.PrintJSON(w, r.File)
	case c.Bool("json"):
		return cmdline.PrintJSON(w, r.Checkpoint)
	case r.File != nil:
		return printFile(w, r.File)
	}
	return printCheckpoint(w, r.Checkpoint)
}
