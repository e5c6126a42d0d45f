package inspect

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// runLattice shows the lattices that the weights of a checkpoint are on.
func runLattice(c *cli.Context, path string) error {
	if c.IsSet("slice") || c.Bool("verbose") {
		return cmdline.Usagef("--lattice goes with --tensor, not with --slice or --verbose")
	}
	w := c.App.Writer
	r, err := gq.InspectLattices(c.Context, path, gq.LatticeOptions{Match: c.String("tensor"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c)})
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		return cmdline.PrintJSON(w, r)
	}
	err = cmdline.Table(w, []string{"TENSOR", "DTYPE", "SHAPE", "BITS>", "GROUP>", "MAPPING", "SCALES", "GROUPS>", "EXACT>"}, func(line func(...any)) {
		for _, t := range r.Tensors {
			l := t.Lattice
			if l == nil {
				line(cmdline.Text(t.Name), t.Dtype, cmdline.Shape(t.Shape), "", "", "no lattice", "", "", "")
				continue
			}
			line(cmdline.Text(t.Name), t.Dtype, cmdline.Shape(t.Shape), l.Bits, group(uint64(l.Group)), l.Mapping, l.ScaleDtype, l.Groups, fmt.Sprintf("%.2f %%", 100*float64(l.Exact)/float64(l.Groups)))
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%d of %d matrices are codes times scales already\n", r.Lattices, len(r.Tensors))
	return err
}
