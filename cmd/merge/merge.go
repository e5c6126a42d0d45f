// Package merge is the command `gq merge`: the parts that several workers made become one .gqf file.
package merge

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// Command gives `gq merge`.
func Command() *cli.Command {
	return &cli.Command{
		Name:      "merge",
		Usage:     "join the parts of a .gqf file that gq quantize --part made on several machines",
		ArgsUsage: "FILE",
		UsageText: `# after gq quantize MODEL --part 0/4 -o model.gqf, and so on to 3/4
gq merge model.gqf
`,
		Description: "FILE is the output of the parts, FILE.part-0-of-4 and so on. All parts are checked: missing and\n" +
			"damaged ones are named, and so are parts of another plan. The file has the bytes that one job\n" +
			"writes. It appears when it is complete; then the parts are removed. A merge can be repeated: of a\n" +
			"complete file without parts it says so, and what that file says about its origin. To hold it to a gate, use gq accuracy --gate.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "keep-parts", Usage: "leave the parts when the file is complete"},
			cmdline.JSON("the summary"),
			cmdline.Quiet(),
		},
		Action: run,
	}
}

func run(c *cli.Context) error {
	if c.NArg() != 1 {
		return cmdline.Usagef("gq merge wants the one file whose parts to join, got %d", c.NArg())
	}
	r, err := gq.Merge(c.Context, c.Args().First(), gq.MergeOptions{KeepParts: c.Bool("keep-parts"), Progress: cmdline.Reporter(c)})
	if r == nil {
		return err
	}
	if printed := print(c, r); err == nil {
		err = printed
	}
	return err
}

func print(c *cli.Context, r *conversion.MergeReport) error {
	w := c.App.Writer
	switch {
	case c.Bool("json"):
		return cmdline.PrintJSON(w, r)
	case r.Merged && r.Parts == 0:
		_, err := fmt.Fprintf(w, "merged   %s is complete, and there are no parts of it: nothing to do\n"+
			"checked  its size, header and directory; not its data: gq verify checks them\n"+
			"origin   not checked: no part is left to compare with. The file says: %s\n", cmdline.Text(r.Output), cmdline.Text(origin(r.Recorded)))
		return err
	case r.Merged:
		_, err := fmt.Fprintf(w, "merged   %s is complete already: it has the data of the parts that are there, of %d\n", cmdline.Text(r.Output), r.Parts)
		return err
	}
	filereport.Tensors(c, r.Report)
	filereport.SQNR(w, r.Report)
	_, err := fmt.Fprintf(w, "merged   %d parts in %.2f s, %.2f s of it sync\n", r.Parts, r.Seconds, r.SyncSeconds)
	return err
}

// origin describes the job that a file says it comes from.
func origin(o *conversion.RecordedJob) string {
	if o.Provenance == nil || o.Recipe == nil || len(o.Provenance.Sources) == 0 {
		return "nothing about its job"
	}
	p, r := o.Provenance, o.Recipe
	group := fmt.Sprint(r.Group)
	if r.Group == quantizer.PerChannel {
		group = "channel"
	}
	s := fmt.Sprintf("--bits %d --group %s --algorithm %s", r.Bits, group, r.Algorithm)
	if n := len(r.Rules); n > 0 {
		s += fmt.Sprintf(" and %d rules", n)
	}
	s += fmt.Sprintf(", of %s (header SHA-256 %.12s)", p.Sources[0].Name, p.Sources[0].HeaderSHA256)
	if n := len(p.Sources) - 1; n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	if p.Repository != nil {
		s += fmt.Sprintf(" from %s@%.12s", p.Repository.Name, p.Repository.Commit)
	}
	return s
}
