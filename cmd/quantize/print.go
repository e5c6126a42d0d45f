package quantize

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy/report"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/quantizer"
)

// PrintPlan prints a plan as a table, or as JSON with --json.
func PrintPlan(c *cli.Context, p *gq.PlanReport) error {
	w := c.App.Writer
	if c.Bool("json") {
		return cmdline.PrintJSON(w, p)
	}
	if err := printAllocation(w, p.Allocation); err != nil {
		return err
	}
	err := cmdline.Table(w, []string{"TENSOR", "ROLE", "SHAPE", "DTYPE", "BECOMES", "LAYOUT", "BYTES>", "BPW>", "WHY"}, func(line func(...any)) {
		for _, t := range p.Tensors {
			line(cmdline.Text(t.Name), t.Role, cmdline.Shape(t.Shape), t.Dtype, becomes(t), strings.Join(t.Layouts, ", "), t.Bytes, fmt.Sprintf("%.3f", t.BitsPerWeight), why(t))
		}
	})
	if err != nil {
		return err
	}
	printWarnings(c.App.ErrWriter, p.Warnings)
	if p.Fold != nil {
		fmt.Fprintf(w, "\nfolded: %s\n", foldedText(p.Fold))
	}
	_, err = fmt.Fprintf(w, "\n%d tensors, %s in, the file will have %d bytes (%s)\n", len(p.Tensors), cmdline.Bytes(p.SourceBytes), p.OutputBytes, cmdline.Bytes(p.OutputBytes))
	return err
}

func becomes(t *quantizer.PlanTensor) string {
	switch t.Action {
	case quantizer.ActionQuantize:
		group := fmt.Sprint("g", t.Group)
		if t.Group == 0 {
			group = "channel"
		}
		s := fmt.Sprintf("%d-bit %s %s %s %s", t.Bits, group, t.Mapping, t.ScaleDtype, t.Algorithm)
		if t.ZeroPoints != "" {
			s += fmt.Sprintf(", %s zeros", t.ZeroPoints)
		}
		if t.Slices > 1 {
			s = fmt.Sprintf("%d x %s", t.Slices, s)
		}
		return s
	case quantizer.ActionShare:
		return "shared with " + cmdline.Text(t.SharedWith)
	}
	return string(t.Action)
}

func why(t *quantizer.PlanTensor) string {
	switch {
	case t.Rule != "" && t.Action == quantizer.ActionQuantize && t.Reason != "":
		return cmdline.Text(t.Rule + "; " + t.Reason)
	case t.Rule != "" || t.Reason != "":
		return cmdline.Text(cmp.Or(t.Rule, t.Reason))
	}
	return ""
}

// printResult prints what a job did. The measurement comes first: it may be what the output is read for.
func printResult(c *cli.Context, r *gq.QuantizeReport) error {
	measure.Warn(c, r.Accuracy)
	w := c.App.Writer
	if !c.Bool("json") {
		if err := printAllocation(w, r.Allocation); err != nil {
			return err
		}
		if r.Accuracy != nil {
			if err := report.Text(w, r.Accuracy, report.TextOptions{Color: cmdline.Color(w)}); err != nil || !r.Written {
				return err
			}
			fmt.Fprintln(w)
		}
	}
	if err := printSummary(c, r); err != nil {
		return err
	}
	if r.NotRunnable != "" {
		fmt.Fprintf(c.App.ErrWriter, "gq: warning: gq cannot run this file: %s\n", cmdline.Text(r.NotRunnable))
	}
	return nil
}

// printSummary prints the tensors, the loss and the time of a job, or all of it as JSON with --json.
func printSummary(c *cli.Context, r *gq.QuantizeReport) error {
	w := c.App.Writer
	if c.Bool("json") {
		return cmdline.PrintJSON(w, r)
	}
	printTensors(c, r.Report)
	if h := r.HeldOut; h != nil {
		fmt.Fprintf(w, "KL       %.5f nats per token, as executed, on %d tokens held out from calibration (%s)\n", h.KL, h.Tokens, h.Source)
	} else {
		printSQNR(w, r.Report)
	}
	if r.HeldOut == nil && r.Allocation == nil && r.Fold == nil && r.Accuracy == nil {
		return printTime(w, r.Report)
	}
	_, err := fmt.Fprintf(w, "time     %.2f s, %.2f s of it to write the file\n", r.Seconds, r.WriteSeconds)
	return err
}

// printAllocation prints the table of the bits that were chosen, if they were.
func printAllocation(w io.Writer, a *gq.Allocation) error {
	if a == nil {
		return nil
	}
	err := cmdline.Table(w, []string{"TENSOR", "BITS>", "GROUP>", "BYTES>", "KL>"}, func(line func(...any)) {
		for _, r := range a.Rows {
			group := strconv.Itoa(r.Group)
			if r.Group == 0 {
				group = "channel"
			}
			line(cmdline.Text(r.Tensor), r.Bits, group, r.Bytes, fmt.Sprintf("%.6f", r.KL))
		}
	})
	if err == nil {
		_, err = fmt.Fprintf(w, "\n%s\n\n", a.Summary())
	}
	return err
}

// PrintReport prints what a job of repacking did, or JSON with --json.
func PrintReport(c *cli.Context, r *quantizer.Report) error {
	if c.Bool("json") {
		return cmdline.PrintJSON(c.App.Writer, r)
	}
	printTensors(c, r)
	printSQNR(c.App.Writer, r)
	return printTime(c.App.Writer, r)
}

// printTensors prints what became of the tensors.
func printTensors(c *cli.Context, r *quantizer.Report) {
	w := c.App.Writer
	printWarnings(c.App.ErrWriter, r.Warnings)
	quantized := fmt.Sprintf("%d quantized", r.Quantized)
	if r.Algorithm != "" {
		quantized += " (" + r.Algorithm + ")"
	}
	parts := []string{quantized, fmt.Sprintf("%d kept", r.Kept), fmt.Sprintf("%d shared", r.Shared)}
	if r.Absorbed > 0 {
		parts = append(parts, fmt.Sprintf("%d absorbed", r.Absorbed))
	}
	fmt.Fprintf(w, "wrote    %s\n", r.Output)
	fmt.Fprintf(w, "tensors  %s\n", strings.Join(parts, ", "))
	if r.RealZeros+r.WholeZeros > 0 {
		fmt.Fprintf(w, "zeros    %d tensors real, %d whole", r.RealZeros, r.WholeZeros)
		if r.RoundedHQQ > 0 {
			fmt.Fprintf(w, " (%d of hqq: rounded, scales fitted to them)", r.RoundedHQQ)
		}
		fmt.Fprintln(w)
	}
	if r.Fold != nil {
		fmt.Fprintf(w, "folded   %s\n", foldedText(r.Fold))
	}
	fmt.Fprintf(w, "size     %s -> %s, %.3f bits per quantized weight, %.3f over all\n", cmdline.Bytes(r.SourceBytes), cmdline.Bytes(r.OutputBytes), r.BitsPerWeight, r.AllBitsPerWeight)
	if r.SmallScales > 0 {
		fmt.Fprintf(w, "scales   %d groups have a scale below the normal range of its dtype, or the smallest there is\n", r.SmallScales)
	}
}

// printSQNR prints the loss of the weights.
func printSQNR(w io.Writer, r *quantizer.Report) {
	if r.Worst != "" {
		fmt.Fprintf(w, "SQNR     mean %.2f dB, worst %.2f dB (%s)\n", r.MeanSQNR, r.WorstSQNR, r.Worst)
	}
}

// printTime prints the time of a job that does little but write the file.
func printTime(w io.Writer, r *quantizer.Report) error {
	_, err := fmt.Fprintf(w, "time     %.2f s (%.2f s of it sync), %.2f GB/s of checkpoint\n", r.Seconds, r.SyncSeconds, r.BytesPerSecond/1e9)
	return err
}

// foldedText says what was done to the checkpoint, and how well that was found to keep the model.
func foldedText(f *quantizer.Fold) string {
	return fmt.Sprintf("%s; logits within %.1e of the largest (%d tokens, %s)", strings.Join(f.Steps, ", "), f.Difference, f.Tokens, f.Source)
}

func printWarnings(w io.Writer, warnings []string) {
	for _, s := range warnings {
		fmt.Fprintf(w, "gq: warning: %s\n", s)
	}
}
