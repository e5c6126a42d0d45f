// Package kernels is the command `gq kernels`, which lists the kernels and chooses among them.
package kernels

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/payloads"
)

// Command gives `gq kernels`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "kernels",
		Usage: "list the kernels that multiply with packed weights, and the choice on this CPU",
		UsageText: `gq kernels
gq kernels --cpu i8mm --m 1,128
`,
		Description: "A kernel reads the packed bytes of a layout. gemv kernels take one row of activations at a time, gemm\n" +
			"kernels unpack a panel once and multiply it with many rows, float kernels are for weights that are not\n" +
			"quantized. The choice is by the number of rows, m. docs/KERNELS.md has more.",
		Flags: append(payloads.Flags("all", "32"),
			&cli.StringFlag{Name: "m", DefaultText: "1,4,16,128", Usage: "`LIST` of numbers of rows of activations to choose for"},
			&cli.StringFlag{Name: "cpu", DefaultText: "GQ_CPU, or the best of this CPU", Usage: "choose as a CPU would whose best instruction set is `NAME`: generic, neon, dotprod, i8mm, avx2, avxvnni, avx512vnni"},
			cmdline.JSON(),
		),
		Action: cmdline.Exactly(run),
	}
}

func run(c *cli.Context) error {
	m, err := payloads.Ints(c, "m", 1, 1<<20)
	if err != nil {
		return err
	}
	q, err := payloads.Query(c)
	if err != nil {
		return err
	}
	r, err := gq.Kernels(gq.KernelsOptions{Weights: q, M: m, CPU: c.String("cpu")})
	return cmdline.Show(c, r, err, print)
}

func print(w io.Writer, r *gq.KernelsReport) error {
	fmt.Fprintf(w, "this CPU has %s; chosen is from %s down\n\n", strings.Join(r.Features, ", "), r.CPU)
	err := cmdline.Table(w, []string{"KERNEL", "CPU", "RUNS HERE", "LAYOUT", "TILE", "BITS>", "GRID", "ZERO POINTS", "SCALES", "ROWS"}, func(line func(cells ...any)) {
		for _, k := range r.Kernels {
			here := "no"
			if k.Available {
				here = "yes"
			}
			list := func(s []string) string { return strings.Join(s, ",") }
			line(k.Name, k.CPU, here, list(k.Layouts), list(k.Tiles), k.Bits, list(k.Grids), list(k.Zeros), list(k.Scales), strings.Trim(strings.ReplaceAll(fmt.Sprint(k.Rows), " ", ","), "[]"))
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	heads := []string{"CHOSEN FOR", "TILE", "BITS>", "GROUP>", "ZERO POINTS"}
	if len(r.Choices) > 0 {
		for _, k := range r.Choices[0].Kernels {
			heads = append(heads, fmt.Sprintf("m = %d", k.M))
		}
	}
	return cmdline.Table(w, heads, func(line func(cells ...any)) {
		for _, c := range r.Choices {
			cells := []any{c.Layout, c.Tile, c.Bits, c.Group, c.Zeros}
			for _, k := range c.Kernels {
				cells = append(cells, k.Kernel)
			}
			line(cells...)
		}
	})
}
