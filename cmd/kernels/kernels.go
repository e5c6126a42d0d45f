// Package kernels is the command `gq kernels`, which lists the kernels and chooses among them.
package kernels

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/payloads"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
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
			&cli.StringFlag{Name: "m", Value: "1,4,16,128", Usage: "`LIST` of numbers of rows of activations to choose for"},
			&cli.StringFlag{Name: "cpu", DefaultText: "GQ_CPU, or the best of this CPU", Usage: "choose as a CPU would whose best instruction set is `NAME`: generic, neon, dotprod, i8mm, avx2, avx512vnni"},
			cmdline.JSON("both tables"),
		),
		Action: run,
	}
}

// Report is the output of `gq kernels --json`.
type Report struct {
	Features []string `json:"features"` // instruction sets of this CPU, from the least to the best
	CPU      string   `json:"cpu"`      // the best instruction set that may be chosen
	Kernels  []Kernel `json:"kernels"`
	Choices  []Choice `json:"choices"`
}

// Kernel is a kernel and the payloads that it reads.
type Kernel struct {
	Name      string   `json:"name"`
	CPU       string   `json:"cpu"`
	Available bool     `json:"available"`
	Kind      string   `json:"kind"`
	Layouts   []string `json:"layouts"`
	Tiles     []string `json:"tiles"`
	Bits      int      `json:"bits"`
	Grids     []string `json:"grids"`
	Zeros     []string `json:"zeros"`
	Scales    []string `json:"scales"`
	Rows      []int    `json:"rows"`
}

// Choice lists the kernels chosen for a kind of weights, by number of rows.
type Choice struct {
	Layout  string   `json:"layout"`
	Tile    string   `json:"tile,omitempty"`
	Bits    int      `json:"bits"`
	Group   string   `json:"group,omitempty"`
	Zeros   string   `json:"zeros,omitempty"`
	Kernels []Chosen `json:"kernels"`
}

// Chosen is the kernel for m rows.
type Chosen struct {
	M      int    `json:"m"`
	Kernel string `json:"kernel"`
}

func run(c *cli.Context) error {
	if c.NArg() != 0 {
		return cmdline.Usagef("gq kernels takes no arguments, got %q", c.Args().First())
	}
	allowed, err := payloads.CPU(c.String("cpu"))
	if err != nil {
		return err
	}
	r := Report{Features: kernels.Features(), CPU: allowed[len(allowed)-1]}
	m, err := payloads.Ints(c, "m", 1, 1<<20)
	if err != nil {
		return err
	}
	request, err := payloads.FromFlags(c, packing.Layouts, []uint64{32})
	if err != nil {
		return err
	}
	headers, err := request.Headers(shape)
	if err != nil {
		return err
	}
	if r.Choices, err = choices(headers, request, m, kernels.Options{CPU: r.CPU}); err != nil {
		return err
	}
	for _, k := range kernels.Table() {
		if wanted(k, headers, request) {
			r.Kernels = append(r.Kernels, describe(k))
		}
	}
	if c.Bool("json") {
		return cmdline.PrintJSON(c.App.Writer, r)
	}
	return print(c.App.Writer, &r, m)
}

// shape is a shape that every group divides. The choice hardly depends on it.
func shape(group uint64) (rows, cols uint64) {
	cols = 4096
	if group != 0 {
		cols = 32 * group
	}
	return 4096, cols
}

// wanted reports whether the flags select k: it reads some of the headers, or floating-point
// kernels are selected.
func wanted(k kernels.Info, headers []packing.Header, r *payloads.Request) bool {
	if k.Kind == "float" {
		return r.Floats()
	}
	return slices.ContainsFunc(headers, func(h packing.Header) bool {
		// Kernels of lowbit are shown for the half-step grid and for all scale dtypes.
		return int(h.Bits) == k.Bits && slices.Contains(k.Layouts, h.Layout) && (r.AnyTile(h.Layout) || slices.Contains(k.Tiles, h.Tile)) &&
			(!r.Zeros || slices.Contains(k.Zeros, h.ZeroKind))
	})
}

// choices looks up the choice for every header, and for floating-point weights.
func choices(headers []packing.Header, r *payloads.Request, m []int, o kernels.Options) ([]Choice, error) {
	var list []Choice
	for _, h := range headers {
		c := Choice{Layout: h.Layout.String(), Tile: h.Tile.String(), Bits: int(h.Bits), Group: "channel", Zeros: h.ZeroKind.String()}
		if h.Group != 0 {
			c.Group = fmt.Sprint(h.Group)
		}
		for _, n := range m {
			name, err := kernels.KernelFor(h, n, o)
			if err != nil {
				return nil, err
			}
			c.Kernels = append(c.Kernels, Chosen{n, name})
		}
		list = append(list, c)
	}
	if !r.Floats() {
		return list, nil
	}
	for _, d := range []packing.Dtype{packing.F32, packing.BF16} {
		op, err := kernels.NewFloat(packing.PlainHeader(d, 1, 1), make([]byte, d.Bits()/8), o)
		if err != nil {
			return nil, err
		}
		c := Choice{Layout: packing.LayoutPlain.String(), Bits: d.Bits()}
		for _, n := range m {
			c.Kernels = append(c.Kernels, Chosen{n, op.Kernel(n)})
		}
		list = append(list, c)
	}
	return list, nil
}

func describe(k kernels.Info) Kernel {
	return Kernel{
		Name: k.Name, CPU: k.Feature, Available: k.Available, Kind: k.Kind, Layouts: names(k.Layouts), Tiles: names(k.Tiles), Bits: k.Bits,
		Grids: names(k.Grids), Zeros: names(k.Zeros), Scales: names(k.Scales), Rows: k.Rows,
	}
}

func names[T fmt.Stringer](list []T) []string {
	s := make([]string, len(list))
	for i, x := range list {
		s[i] = x.String()
	}
	return s
}

func print(w io.Writer, r *Report, m []int) error {
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
	for _, n := range m {
		heads = append(heads, fmt.Sprintf("m = %d", n))
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
