// Package verify is the command `gq verify`: is a .gqf file intact?
package verify

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/gqf"
)

// Command gives `gq verify`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "verify",
		Usage: "check the structure, every checksum and every panel of a .gqf file; of a .gguf file, what can be checked",
		UsageText: `gq verify model.gqf
gq verify model.gqf --fast --json
`,
		ArgsUsage: "FILE",
		Description: "Each damaged place is a line that names the block of the file and the tensors in it.\n" +
			"Exit status: 0 the file is as it was written, 1 it is damaged or cannot be read.\n\n" +
			"A .gguf file has no checksums. Its structure and its shards are checked, and that all weights are\n" +
			"numbers; with --fast the structure alone.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "fast", Usage: "checksums only: leave out that scales, sums and padding of every panel agree"},
			cmdline.Threads(),
			cmdline.JSON("the report"),
			cmdline.Quiet(),
		},
		Action: run,
	}
}

func run(c *cli.Context) error {
	if c.NArg() != 1 {
		return cmdline.Usagef("gq verify wants one .gqf or .gguf file, got %d", c.NArg())
	}
	path := c.Args().First()
	o := gq.VerifyOptions{Fast: c.Bool("fast"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c)}
	if gq.IsGGUF(path) {
		return verifyGGUF(c, path, o)
	}
	report, err := gq.Verify(c.Context, path, o)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = cmdline.PrintJSON(c.App.Writer, result{report.OK(), report})
	} else {
		err = print(c.App.Writer, report)
	}
	if err != nil {
		return err
	}
	switch n := len(report.Damage) + report.MoreDamage; {
	case n == 1:
		return fmt.Errorf("%s is damaged in 1 place", report.File)
	case n > 1:
		return fmt.Errorf("%s is damaged in %d places", report.File, n)
	}
	return nil
}

// result is what --json prints.
type result struct {
	OK bool `json:"ok"`
	*gqf.VerifyReport
}

func print(w io.Writer, r *gqf.VerifyReport) error {
	for _, d := range r.Damage {
		if _, err := fmt.Fprintln(w, d); err != nil {
			return err
		}
	}
	if r.MoreDamage > 0 {
		_, err := fmt.Fprintf(w, "and %d places more\n", r.MoreDamage)
		return err
	}
	if !r.OK() {
		return nil
	}
	depth := "every panel"
	if !r.Deep {
		depth = "panels not looked into"
	}
	_, err := fmt.Fprintf(w, "%s: ok (%s: %d tensors, %d payloads, %d assets, %d block checksums, %s)\n",
		r.File, cmdline.Bytes(r.Bytes), r.Tensors, r.Payloads, r.Assets, r.Blocks, depth)
	return err
}
