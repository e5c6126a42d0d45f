package quantize

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/internal/report"
)

// printResult prints the result of a job. The measurement comes first: standard output may be meant
// for it.
func printResult(c *cli.Context, r *gq.QuantizeReport) error {
	measure.Warn(c, r.Accuracy)
	w := c.App.Writer
	if !c.Bool("json") {
		if err := filereport.Allocation(c, r.Allocation); err != nil {
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

// printSummary prints the tensors, the loss and the time of a job, or with --json all of it.
func printSummary(c *cli.Context, r *gq.QuantizeReport) error {
	w := c.App.Writer
	if c.Bool("json") {
		return cmdline.PrintJSON(w, r)
	}
	filereport.Tensors(c, r.Report)
	if r.FoldChoice != nil {
		fmt.Fprintf(w, "fold     auto: %s\n", r.FoldChoice)
	}
	printTuning(w, r.Tuning)
	if h := r.HeldOut; h != nil {
		fmt.Fprintf(w, "KL       %.5f nats per token, as executed, on %d tokens held out from calibration (%s)\n", h.KL, h.Tokens, h.Source)
	} else {
		filereport.SQNR(w, r.Report)
	}
	if r.BytesPerSecond > 0 {
		return filereport.Time(w, r.Report)
	}
	_, err := fmt.Fprintf(w, "time     %.2f s, %.2f s of it to write the file\n", r.Seconds, r.WriteSeconds)
	return err
}

// printTuning prints what tuning gained.
func printTuning(w io.Writer, t *gq.TuningReport) {
	if t == nil {
		return
	}
	before, after, how := t.WeightsBefore, t.WeightsAfter, "weights only"
	if t.Before != nil {
		before, after, how = *t.Before, *t.After, "as executed"
	}
	switch {
	case t.Step == 0:
		fmt.Fprintf(w, "tuned    no: no step of %d was better than the start, KL %.5f on held-out text\n", t.Steps, t.WeightsBefore)
	case !t.Used:
		fmt.Fprintf(w, "tuned    no: KL %.5f instead of %.5f on held-out text, %s: the file has the untuned numbers\n", after, before, how)
	default:
		fmt.Fprintf(w, "tuned    %s, step %d of %d: KL %.5f -> %.5f nats per token, %s, on %d held-out tokens (%s)\n", t.Kind, t.Step, t.Steps, before, after, how, t.HeldOut, t.Source)
	}
}
