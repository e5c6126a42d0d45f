package inspect

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
	"github.com/urfave/cli/v2"
)

func printTensor(w io.Writer, r *gqf.TensorInspection) error {
	t, h := &r.Tensor, &r.Header
	fmt.Fprintf(w, "%s: %s, %s %s", cmdline.Text(t.Name), t.Role, t.Dtype, cmdline.Shape(t.Shape))
	if t.Transposed {
		fmt.Fprint(w, " stored in x out")
	}
	if t.Slices > 1 {
		fmt.Fprintf(w, ", slice %d of %d", r.Slice, t.Slices)
	}
	fmt.Fprintln(w)
	for _, name := range t.SharedWith {
		fmt.Fprintf(w, "also %s\n", cmdline.Text(name))
	}
	if t.Bias != "" {
		fmt.Fprintf(w, "bias %s\n", cmdline.Text(t.Bias))
	}

	fmt.Fprintf(w, "\npacked header at byte %d\n", r.Offset)
	field := func(name string, value any) { inner(w, name, value) }
	field("layout", h.Layout)
	if t.CPU != 0 {
		field("CPU", t.CPU)
	}
	if t.Quantized {
		field("tile", h.Tile)
		field("bits", h.Bits)
		field("grid", h.Grid)
		field("group", fmt.Sprintf("%s, %d in a row", group(h.Group), h.Groups))
		field("mapping", t.Mapping)
		field("algorithm", t.Algorithm)
		field("scales", h.ScaleDtype)
		switch {
		case r.FloatZeroPoints != nil:
			field("zero points", h.ZeroPoints+", real")
		case len(r.ZeroPoints) > 0 && h.ZeroPoints == packing.ZeroF32.String():
			field("zero points", h.ZeroPoints+", whole")
		default:
			field("zero points", h.ZeroPoints)
		}
		field("flags", cmp.Or(h.Flags, "none"))
	} else {
		field("dtype", h.Dtype)
	}
	field("rows", h.Rows)
	field("columns", h.Cols)
	field("data bytes", h.DataBytes)
	field("bits/weight", bpw(t.BitsPerWeight))

	printScales(w, "scales", r.Scales)
	if z := r.FloatZeroPoints; z != nil {
		fmt.Fprintf(w, "\nzero points, added to code * scale\n")
		field("count", fmt.Sprintf("%d, %d of them no integers", z.Count, z.NotInteger))
		field("range", fmt.Sprintf("%v to %v", z.Min, z.Max))
		field("mean", z.Mean)
	}
	histogram(w, "codes", r.Codes)
	name := "zero points"
	if h.ZeroPoints == packing.ZeroFraction.String() {
		name += fmt.Sprintf(", in units of 1/%d", 1<<(8-h.Bits))
	}
	histogram(w, name, r.ZeroPoints)
	return printValues(w, r.Values)
}

// printScales prints statistics of scales or minima, unless s is nil.
func printScales(w io.Writer, title string, s *gqf.ScaleStatistics) {
	if s == nil {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	inner(w, "count", fmt.Sprintf("%d, %d of them negative", s.Count, s.Negative))
	inner(w, "range", fmt.Sprintf("%v to %v", s.Min, s.Max))
	inner(w, "mean", s.Mean)
}

// inner prints a line below a title.
func inner(w io.Writer, name string, value any) { fmt.Fprintf(w, "  %-12s %v\n", name, value) }

func printValues(w io.Writer, values []gqf.Value) error {
	if len(values) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nfirst weights of row 0\n")
	var err error
	for i := 0; i < len(values); i += 4 {
		line := ""
		for _, v := range values[i:min(i+4, len(values))] {
			line += fmt.Sprintf("  %-16v", v)
		}
		_, err = fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	return err
}

const (
	maxBars  = 32 // of a histogram
	barWidth = 50 // characters of the longest bar
)

// histogram draws counts as bars. It merges codes into ranges if there are more than maxBars.
func histogram(w io.Writer, title string, counts []gqf.CodeCount) {
	if len(counts) == 0 {
		return
	}
	low := counts[0].Code
	step := (counts[len(counts)-1].Code - low + maxBars) / maxBars
	bars := make([]int64, (counts[len(counts)-1].Code-low)/step+1)
	var longest, total int64
	for _, c := range counts {
		i := (c.Code - low) / step
		bars[i] += c.Count
		longest = max(longest, bars[i])
		total += c.Count
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for i, n := range bars {
		label := fmt.Sprint(low + i*step)
		if step > 1 {
			label = fmt.Sprintf("%d..%d", low+i*step, low+(i+1)*step-1)
		}
		share, bar := 0.0, ""
		if longest > 0 {
			share = 100 * float64(n) / float64(total)
			bar = strings.Repeat("#", int((n*barWidth+longest-1)/longest))
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %10s %12d %6.2f %%  %s", label, n, share, bar), " "))
	}
}

// runLattice shows the lattices that the weights of a checkpoint are on.
func runLattice(c *cli.Context, path string) error {
	if c.IsSet("slice") || c.Bool("verbose") {
		return cmdline.Usagef("--lattice goes with --tensor, not with --slice or --verbose")
	}
	w := c.App.Writer
	r, err := gq.InspectLattices(c.Context, path, gq.LatticeOptions{Match: c.String("tensor"), Lora: c.StringSlice("lora"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c)})
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
