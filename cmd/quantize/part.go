package quantize

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// part reads the flags of a part; nil without.
func part(c *cli.Context) (*gq.PartOptions, error) {
	if !c.IsSet("part") {
		if c.Bool("shared") {
			return nil, cmdline.Usagef("--shared goes with --part")
		}
		return nil, nil
	}
	if c.Bool("dry-run") {
		return nil, cmdline.Usagef("--dry-run beside --part: the plan is of the whole job, leave --part out")
	}
	p, err := gq.ParsePart(c.String("part"), os.Getenv)
	if err != nil {
		return nil, cmdline.Usagef("--part: %w", err)
	}
	return &gq.PartOptions{Part: p, Shared: c.Bool("shared")}, nil
}

// runPart makes and reports a part.
func runPart(c *cli.Context, src string, p *gq.PartOptions, opts gq.QuantizeOptions) error {
	r, err := gq.QuantizePart(c.Context, src, output(c, opts.Format), *p, opts)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return cmdline.PrintJSON(c.App.Writer, r)
	}
	return printPart(c, r)
}

func printPart(c *cli.Context, r *conversion.PartReport) error {
	w := c.App.Writer
	for _, s := range r.Warnings {
		fmt.Fprintf(c.App.ErrWriter, "gq: warning: %s\n", s)
	}
	if r.Merged {
		_, err := fmt.Fprintf(w, "merged   the object is complete already, with part %d/%d, plan %s\n", r.Index, r.Of, r.Plan)
		return err
	}
	what := "wrote   "
	if r.Found {
		what = "found   "
	}
	fmt.Fprintf(w, "%s %s\n", what, cmdline.Text(r.Output))
	if r.Shared != "" {
		fmt.Fprintf(w, "data     in %s\n", cmdline.Text(r.Shared))
	}
	fmt.Fprintf(w, "part     %d/%d: %d of %d units, %s of the checkpoint -> %s, plan %s\n", r.Index, r.Of, r.Units, r.AllUnits, cmdline.Bytes(r.SourceBytes), cmdline.Bytes(r.DataBytes), r.Plan)
	_, err := fmt.Fprintf(w, "time     %.2f s; gq merge joins the parts when all are there\n", r.Seconds)
	return err
}
