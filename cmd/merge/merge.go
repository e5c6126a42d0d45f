// Package merge is the command `gq merge`: the parts that several workers made become one .gqf
// file.
package merge

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
	"github.com/lowbit-go/gq/internal/job/divide"
)

// Command gives `gq merge`.
func Command() *cli.Command {
	return &cli.Command{
		Name:      "merge",
		Usage:     "join the parts of a .gqf file that gq quantize --part made on several machines",
		ArgsUsage: "FILE",
		UsageText: `# after gq quantize MODEL --part 0/4 -o model.gqf, and so on to 3/4
gq merge model.gqf --plan 8f8d3f2c7a10b4c9e1d20f6a
`,
		Description: "FILE is the output of the parts, FILE.part-0-of-4 and so on. All parts are checked: missing and\n" +
			"damaged ones are named, and so are parts of another plan. The file has the bytes that one job\n" +
			"writes. It appears when it is complete; then the parts are removed. A merge can be repeated.\n" +
			"--plan keeps parts and files of other jobs out. gq quantize --part prints it, with --dry-run too.\n" +
			"To hold the file to a gate, use gq accuracy --gate.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "plan", Usage: "`PLAN` of the job, which gq quantize --part prints (required)"},
			&cli.BoolFlag{Name: "keep-parts", Usage: "leave the parts when the file is complete"},
			cmdline.JSON(),
			cmdline.Quiet(),
		},
		Action: cmdline.Exactly(run),
	}
}

func run(c *cli.Context) error {
	r, err := gq.Merge(c.Context, c.Args().First(), gq.MergeOptions{Plan: c.String("plan"), KeepParts: c.Bool("keep-parts"), Progress: cmdline.Reporter(c)})
	if r == nil {
		return err
	}
	if printed := print(c, r); err == nil {
		err = printed
	}
	return err
}

func print(c *cli.Context, r *divide.MergeReport) error {
	w := c.App.Writer
	switch {
	case c.Bool("json"):
		return cmdline.PrintJSON(w, r)
	case r.Merged && r.Parts == 0:
		_, err := fmt.Fprintf(w, "merged   %s is complete, and there are no parts of it: nothing to do\n"+
			"checked  its size, header, directory and plan; not its data: gq verify checks them\n", cmdline.Text(r.Output))
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
