package synth

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/quantizer/fold"
)

// outlierFlags go with --outliers.
var outlierFlags = []string{"outliers", "output", "strength", "calibrate", "threads", "seed", "json", "quiet"}

// runOutliers makes a copy of a checkpoint.
func runOutliers(c *cli.Context) error {
	for _, f := range c.Command.Flags {
		if name := f.Names()[0]; c.IsSet(name) && !slices.Contains(outlierFlags, name) {
			return cmdline.Usagef("--%s describes random weights: it has no meaning for --outliers", name)
		}
	}
	dir := cmp.Or(c.String("output"), c.Args().First())
	switch {
	case c.String("outliers") == "":
		return cmdline.Usagef("--outliers names no checkpoint: use --outliers CHECKPOINT")
	case dir == "":
		return cmdline.Usagef("gq synth --outliers wants a directory to write to: -o DIR")
	case c.NArg() > 1 || c.NArg() == 1 && c.IsSet("output"):
		return cmdline.Usagef("gq synth --outliers wants one directory to write to")
	case c.IsSet("seed") && c.Uint64("seed") == 0:
		return cmdline.Usagef("--seed 0: at least 1")
	}
	r, err := gq.SynthOutliers(c.Context, c.String("outliers"), dir, gq.OutlierOptions{
		Seed: c.Uint64("seed"), Strength: c.Int("strength"), Calibrate: c.String("calibrate"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c),
	})
	if err != nil {
		return err
	}
	if r.NotRotated != "" {
		fmt.Fprintf(c.App.ErrWriter, "warning: only channels were multiplied: %s\n", cmdline.Text(r.NotRotated))
	}
	if c.Bool("json") {
		return cmdline.PrintJSON(c.App.Writer, r)
	}
	return printOutliers(c.App.Writer, r)
}

func printOutliers(w io.Writer, r *gq.OutlierReport) error {
	rows := []struct {
		name          string
		channels      int
		before, after fold.Spread
	}{
		{"hidden states", len(r.Residual), r.Before.Residual, r.After.Residual},
		{"norm outputs", r.Channels["norms"], r.Before.Norms, r.After.Norms},
		{"inputs of o", r.Channels["values"], r.Before.Values, r.After.Values},
		{"inputs of down", r.Channels["up"], r.Before.Up, r.After.Up},
	}
	fmt.Fprintf(w, "%s: outliers made in %.1f s (seed %d, strength %d)\n", cmdline.Text(r.Output), r.Seconds, r.Seed, r.Strength)
	fmt.Fprintf(w, "logits within %.1e of the largest (%d tokens, %s)\n\n", r.Check.Difference, r.Check.Tokens, r.Check.Source)
	fmt.Fprintf(w, "largest channel / median channel, root mean squares: median of all places (largest)\n")
	fmt.Fprintf(w, "%-16s %9s   %-18s %s\n", "", "channels", "before", "after")
	for _, row := range rows {
		fmt.Fprintf(w, "%-16s %9d   %-18s %s\n", row.name, row.channels, spread(row.before), spread(row.after))
	}
	return nil
}

func spread(s fold.Spread) string { return fmt.Sprintf("%.1f (%.1f)", s.Median, s.Largest) }
