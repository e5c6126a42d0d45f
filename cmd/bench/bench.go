// Package bench is the command `gq bench`, which measures the speed of gq on this machine.
package bench

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/quantizer"
)

// Command gives `gq bench`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure gq on this machine",
		Subcommands: []*cli.Command{kernelsCommand(), {
			Name:  "quantize",
			Usage: "time `gq quantize --bits 4 --group 32` of a checkpoint and a plain copy of the same sizes",
			UsageText: `gq bench quantize synthetic
`,
			ArgsUsage: "SRC",
			Description: "Each round copies (reads all input, writes and syncs as many bytes as the output has), then\n" +
				"quantizes. gq synth --preset llama-3.2-1b DIR makes a checkpoint to measure with.",
			Flags: []cli.Flag{
				&cli.IntFlag{Name: "rounds", Value: 5, Usage: "`N`: rounds; the first warms the page cache and is not counted"},
				cmdline.Threads(),
				&cli.StringFlag{Name: "layout", DefaultText: "lowbit", Usage: "`LAYOUT`: as of gq quantize"},
				&cli.StringFlag{Name: "target", Usage: "`NAME`: as of gq quantize"},
				&cli.StringFlag{Name: "dir", Usage: "`DIR` to write to (default: SRC's)"},
				cmdline.JSON("the figures"),
			},
			Action: run,
		}},
	}
}

func run(c *cli.Context) error {
	if c.NArg() != 1 {
		return cmdline.Usagef("gq bench quantize wants one checkpoint; gq synth makes one")
	}
	o := gq.BenchQuantizeOptions{Rounds: c.Int("rounds"), Threads: c.Int("threads"), Dir: c.String("dir"), Progress: cmdline.Reporter(c)}
	if o.Rounds == 0 { // the library reads 0 as the default
		o.Rounds = -1
	}
	var err error
	if s := c.String("layout"); s != "" {
		if o.Recipe.Layouts, err = quantizer.ParseLayouts(s); err != nil {
			return cmdline.Usagef("--layout: %w", err)
		}
	}
	if s := c.String("target"); s != "" {
		if o.Recipe.Targets, err = quantizer.ParseTargets(s); err != nil {
			return cmdline.Usagef("--target: %w", err)
		}
	}
	r, err := gq.BenchQuantize(c.Context, c.Args().First(), o)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return cmdline.PrintJSON(c.App.Writer, r)
	}
	return print(c.App.Writer, r)
}

func print(w io.Writer, r *gq.BenchQuantizeReport) error {
	fmt.Fprintf(w, "%d threads, %s in, %s out; seconds of wall time, sync and rename included\n", r.Threads, cmdline.Bytes(r.SourceBytes), cmdline.Bytes(r.OutputBytes))
	line := func(name string, s []float64) {
		fmt.Fprintf(w, "%-12s", name)
		best := s[0]
		for _, v := range s {
			fmt.Fprintf(w, " %6.2f", v)
			best = min(best, v)
		}
		fmt.Fprintf(w, "   best %.2f s, %.2f GB/s of input\n", best, float64(r.SourceBytes)/best/1e9)
	}
	line("plain copy", r.Copy)
	line("gq quantize", r.Quantize)
	return nil
}
