// Package filereport prints plans and reports of the jobs that write .gqf files.
package filereport

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/urfave/cli/v2"
)

// Plan prints the plan of a job that ended with err as a table, or as JSON with --json.
func Plan(c *cli.Context, p *gq.PlanReport, err error) error {
	return cmdline.Show(c, p, err, func(w io.Writer, p *gq.PlanReport) error { return printPlan(c, w, p) })
}

func printPlan(c *cli.Context, w io.Writer, p *gq.PlanReport) error {
	if err := Allocation(c, p.Allocation); err != nil {
		return err
	}
	err := cmdline.Table(w, []string{"TENSOR", "ROLE", "SHAPE", "DTYPE", "BECOMES", "LAYOUT", "BYTES>", "BPW>", "WHY"}, func(line func(...any)) {
		for _, t := range p.Tensors {
			if p.Choice != nil && slices.Contains(p.Choice.Tensors, t.Name) {
				line(cmdline.Text(t.Name), t.Role, cmdline.Shape(t.Shape), t.Dtype, fmt.Sprintf("%d to %d bits", p.Choice.MinBits, p.Choice.MaxBits), "", "", "", "to be chosen")
				continue
			}
			line(cmdline.Text(t.Name), t.Role, cmdline.Shape(t.Shape), t.Dtype, becomes(t), strings.Join(t.Layouts, ", "), t.Bytes, fmt.Sprintf("%.3f", t.BitsPerWeight), why(t))
		}
	})
	if err != nil {
		return err
	}
	warnings(c.App.ErrWriter, p.Warnings)
	if p.Fold != nil {
		fmt.Fprintf(w, "\nfolded: %s\n", foldedText(p.Fold))
	}
	if p.FoldChoice != nil {
		fmt.Fprintf(w, "fold auto: %s\n", p.FoldChoice)
	}
	if p.Choice == nil {
		_, err = fmt.Fprintf(w, "\n%d tensors, %s in, the file will have %d bytes (%s)\n", len(p.Tensors), cmdline.Bytes(p.SourceBytes), p.OutputBytes, cmdline.Bytes(p.OutputBytes))
	} else {
		_, err = fmt.Fprintf(w, "\n%d tensors, %s in\n%s", len(p.Tensors), cmdline.Bytes(p.SourceBytes), plannedChoice(p.Choice))
	}
	if e := p.Estimate; err == nil && e != nil {
		_, err = fmt.Fprintf(w, "estimate: %s\n  (%s)\n", e, e.How)
	}
	return err
}

func becomes(t *plan.Tensor) string {
	switch t.Action {
	case plan.ActionQuantize:
		group := fmt.Sprint("g", t.Group)
		if t.Group == 0 {
			group = "channel"
		}
		s := fmt.Sprintf("%d-bit %s %s %s %s", t.Bits, group, t.Mapping, t.ScaleDtype, t.Algorithm)
		switch t.ZeroPoints {
		case rounding.IntegerZeros:
			s += ", integer zeros"
		case rounding.FractionalZeros:
			s += ", fractional zeros"
		case rounding.FloatZeros:
			s += ", floating-point zeros"
		}
		if t.Slices > 1 {
			s = fmt.Sprintf("%d x %s", t.Slices, s)
		}
		return s
	case plan.ActionShare:
		return "shared with " + cmdline.Text(t.SharedWith)
	}
	return string(t.Action)
}

func why(t *plan.Tensor) string {
	switch {
	case t.Rule != "" && t.Action == plan.ActionQuantize && t.Reason != "":
		return cmdline.Text(t.Rule + "; " + t.Reason)
	case t.Rule != "" || t.Reason != "":
		return cmdline.Text(cmp.Or(t.Rule, t.Reason))
	}
	return ""
}

// Report prints the result of a repack job that ended with err, or JSON with --json.
func Report(c *cli.Context, r *write.Report, err error) error {
	return cmdline.Show(c, r, err, func(w io.Writer, r *write.Report) error {
		Tensors(c, r)
		SQNR(w, r)
		return Time(w, r)
	})
}

// Tensors prints the numbers of quantized and unquantized tensors.
func Tensors(c *cli.Context, r *write.Report) {
	w := c.App.Writer
	warnings(c.App.ErrWriter, r.Warnings)
	quantized := fmt.Sprintf("%d quantized", r.Quantized)
	if r.Algorithm != "" {
		quantized += " (" + r.Algorithm + ")"
	}
	parts := []string{quantized, fmt.Sprintf("%d unquantized", r.Unquantized), fmt.Sprintf("%d shared", r.Shared)}
	if r.Absorbed > 0 {
		parts = append(parts, fmt.Sprintf("%d absorbed", r.Absorbed))
	}
	more := ""
	if r.Shards > 0 {
		more = fmt.Sprintf(" and %d more shards", r.Shards-1)
	}
	fmt.Fprintf(w, "wrote    %s%s\n", r.Output, more)
	fmt.Fprintf(w, "tensors  %s\n", strings.Join(parts, ", "))
	if r.FloatZeros+r.Fractions+r.IntegerZeros > 0 {
		fmt.Fprintf(w, "zeros    %d tensors floating-point", r.FloatZeros)
		if r.Fractions > 0 {
			fmt.Fprintf(w, ", %d fractional", r.Fractions)
		}
		fmt.Fprintf(w, ", %d integer\n", r.IntegerZeros)
	}
	if r.Fold != nil {
		fmt.Fprintf(w, "folded   %s\n", foldedText(r.Fold))
	}
	fmt.Fprintf(w, "size     %s -> %s, %.3f bits per quantized weight, %.3f over all\n", cmdline.Bytes(r.SourceBytes), cmdline.Bytes(r.OutputBytes), r.BitsPerWeight, r.AllBitsPerWeight)
	if b := r.ReadBack; b != nil {
		fmt.Fprintf(w, "checked  read back, its logits are within %.1e of the largest of the source's (%d tokens", b.Difference, b.Tokens-b.Rerouted)
		if b.Rerouted > 0 {
			fmt.Fprintf(w, "; %d more go to other experts, equal but for rounding", b.Rerouted)
		}
		fmt.Fprintln(w, ")")
	}
	if l := r.Recovered; l != nil {
		fmt.Fprintf(w, "lattice  %d of %d groups were codes times a scale already: kept exactly\n", l.Exact, l.Groups)
	}
	if r.SmallScales > 0 {
		fmt.Fprintf(w, "scales   %d groups have a scale below the normal range of its dtype, or the smallest there is\n", r.SmallScales)
	}
}

// SQNR prints the loss of the weights.
func SQNR(w io.Writer, r *write.Report) {
	if r.Worst != "" {
		fmt.Fprintf(w, "SQNR     mean %.2f dB, worst %.2f dB (%s)\n", r.MeanSQNR, r.WorstSQNR, r.Worst)
	}
}

// Time prints the time of a job that does little but write the file.
func Time(w io.Writer, r *write.Report) error {
	_, err := fmt.Fprintf(w, "time     %.2f s (%.2f s of it sync), %.2f GB/s of checkpoint\n", r.Seconds, r.SyncSeconds, r.BytesPerSecond/1e9)
	return err
}

// foldedText describes the folding of the checkpoint and the check of its logits.
func foldedText(f *provenance.Fold) string {
	return fmt.Sprintf("%s; logits within %.1e of the largest (%d tokens, %s)", strings.Join(f.Steps, ", "), f.Difference, f.Tokens, f.Source)
}

func warnings(w io.Writer, list []string) {
	for _, s := range list {
		fmt.Fprintf(w, "gq: warning: %s\n", s)
	}
}

// Allocation prints the chosen bits, with -q without the table; nothing if a is nil.
func Allocation(c *cli.Context, a *gq.Allocation) error {
	if a == nil {
		return nil
	}
	w := c.App.Writer
	if !c.Bool("quiet") {
		if err := allocationTable(w, a.Rows); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s\n\n", a.Summary())
	return err
}

// allocationTable prints the table of chosen bits, and an empty line.
func allocationTable(w io.Writer, rows []alloc.Row) error {
	columns := []string{"TENSOR", "BITS>", "GROUP>", "BYTES>", "KL>"}
	typed := slices.ContainsFunc(rows, func(r alloc.Row) bool { return r.Type != "" })
	if typed {
		columns = slices.Insert(columns, 1, "TYPE")
	} else {
		columns = slices.Insert(columns, 3, "MAPPING")
	}
	err := cmdline.Table(w, columns, func(line func(...any)) {
		for _, r := range rows {
			group := strconv.Itoa(r.Group)
			if r.Group == 0 {
				group = "channel"
			}
			cells := []any{cmdline.Text(r.Tensor), r.Bits, group, r.Bytes, fmt.Sprintf("%.6f", r.KL)}
			if typed {
				cells = slices.Insert(cells, 1, any(r.Type))
			} else {
				cells = slices.Insert(cells, 3, any(r.Mapping))
			}
			line(cells...)
		}
	})
	fmt.Fprintln(w)
	return err
}

// plannedChoice describes a choice of bits that a plan has not made.
func plannedChoice(c *gq.PlannedChoice) string {
	var b strings.Builder
	fmt.Fprintf(&b, "choice: %d tensors of %d to %d bits, in groups of %s\n", len(c.Tensors), c.MinBits, c.MaxBits, groups(c.Groups))
	fmt.Fprintf(&b, "  limits: %.3f to %.3f bits per weight, a file of %s to %s\n", c.LeastBitsPerWeight, c.MostBitsPerWeight, cmdline.Bytes(c.LeastOutputBytes), cmdline.Bytes(c.MostOutputBytes))
	fmt.Fprintf(&b, "  work: %d tokens of text are read once, once forward and backward, and once for each of %d probes", c.Tokens, c.Probes)
	if c.Files > 0 {
		fmt.Fprintf(&b, ";\n    then up to %d files are made, and run on a text to compare them", c.Files)
	}
	b.WriteString("\n  not made: a dry run chooses only with --save-recipe or --calibrate-out, as slowly as the job\n")
	return b.String()
}

func groups(list []int) string {
	var names []string
	for _, g := range list {
		if g == 0 {
			names = append(names, "a channel")
		} else {
			names = append(names, fmt.Sprint(g))
		}
	}
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return strings.Join(names, "")
}
