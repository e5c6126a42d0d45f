// Package verify is the command `gq verify`: is a .gqf file intact?
package verify

import (
	"fmt"
	"io"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/urfave/cli/v2"
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
			cmdline.JSON(),
			cmdline.Quiet(),
		},
		Action: cmdline.Exactly(run),
	}
}

func run(c *cli.Context) error {
	path := c.Args().First()
	o := gq.VerifyOptions{Fast: c.Bool("fast"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c)}
	if gq.IsGGUF(path) {
		return verifyGGUF(c, path, o)
	}
	report, err := gq.Verify(c.Context, path, o)
	if err != nil {
		return err
	}
	if err := cmdline.Show(c, result{report.OK(), report}, nil, print); err != nil {
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

func print(w io.Writer, r result) error {
	for _, d := range r.Damage {
		if _, err := fmt.Fprintln(w, d); err != nil {
			return err
		}
	}
	if r.MoreDamage > 0 {
		_, err := fmt.Fprintf(w, "and %d places more\n", r.MoreDamage)
		return err
	}
	if !r.OK {
		return nil
	}
	depth := "every panel"
	switch {
	case !r.Deep:
		depth = "panels not looked into"
	case r.Skipped > 0:
		depth = fmt.Sprintf("every panel of the layouts that this version knows, variants skipped: %d", r.Skipped)
	}
	_, err := fmt.Fprintf(w, "%s: ok (%s: %d tensors, %d payloads, %d assets, %d block checksums, %s)\n",
		r.File, cmdline.Bytes(r.Bytes), r.Tensors, r.Payloads, r.Assets, r.Blocks, depth)
	return err
}

func verifyGGUF(c *cli.Context, path string, o gq.VerifyOptions) error {
	report, err := gq.VerifyGGUF(c.Context, path, o)
	if err != nil {
		return err
	}
	ok := len(report.NotFinite) == 0
	if err := cmdline.Show(c, ggufResult{ok, report}, nil, printGGUF); err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s has weights that are no numbers, in %d of %d tensors", report.File, len(report.NotFinite), report.Tensors)
	}
	return nil
}

type ggufResult struct {
	OK bool `json:"ok"`
	*gq.GGUFReport
}

func printGGUF(w io.Writer, r ggufResult) error {
	for _, line := range r.NotFinite {
		if _, err := fmt.Fprintln(w, cmdline.Text(line)); err != nil {
			return err
		}
	}
	if r.NoModel != "" {
		if _, err := fmt.Fprintf(w, "gq cannot run or repack this model: %s\n", cmdline.Text(r.NoModel)); err != nil {
			return err
		}
	}
	if len(r.NotFinite) > 0 {
		return nil
	}
	weights := "all weights are numbers"
	switch {
	case !r.Weights:
		weights = "weights not looked at"
	case r.Unread > 0:
		weights = fmt.Sprintf("all weights are numbers but those of %d tensors, whose types gq cannot read", r.Unread)
	}
	shards := ""
	if r.Shards > 1 {
		shards = fmt.Sprintf("%d shards, ", r.Shards)
	}
	_, err := fmt.Fprintf(w, "%s: structure ok, no checksums in this format (%s: %s%d keys, %d tensors, %s)\n",
		cmdline.Text(r.File), cmdline.Bytes(r.Bytes), shards, r.Keys, r.Tensors, weights)
	return err
}
