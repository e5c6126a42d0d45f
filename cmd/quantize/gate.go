package quantize

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/accuracy/report"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/quantizer"
)

// gateJob reads the flags for --gate; nil without.
func gateJob(c *cli.Context, src string) (*accuracy.Job, error) {
	if !c.IsSet("gate") {
		for _, f := range append(measure.TextFlags(), &cli.BoolFlag{Name: "keep"}) {
			if name := f.Names()[0]; c.IsSet(name) {
				return nil, cmdline.Usagef("--%s goes with --gate", name)
			}
		}
		return nil, nil
	}
	if c.Bool("dry-run") {
		return nil, cmdline.Usagef("--dry-run writes nothing that a --gate could be for")
	}
	j, err := measure.Job(c)
	if err != nil {
		return nil, err
	}
	j.Source, j.Name, j.Parity = src, c.String("output"), true
	return j, nil
}

// gatedReport is what --json prints with --gate.
type gatedReport struct {
	*quantizer.Report
	Written  bool             `json:"written"` // false if the gate was not met
	Accuracy *accuracy.Report `json:"accuracy"`
}

// writeGated writes the file if it meets the gate, or in any case with --keep.
func writeGated(c *cli.Context, plan *quantizer.Plan, job *accuracy.Job, bar *cmdline.Progress) error {
	var measured *accuracy.Report
	var written *quantizer.Report
	var unmet *measure.GateError
	final, err := plan.WriteChecked(c.Context, job.Name, func(temp string, r *quantizer.Report) (err error) {
		bar.Finish()
		written, job.File = r, temp
		if measured, err = measure.Run(c, job); err != nil {
			return err
		}
		note := fmt.Sprintf("; %s was not written", cmdline.Text(job.Name))
		if c.Bool("keep") {
			note = fmt.Sprintf("; %s was written all the same (--keep)", cmdline.Text(job.Name))
		}
		if err = measure.Verdict(measured, note); errors.As(err, &unmet) && c.Bool("keep") {
			return nil
		}
		return err
	})
	bar.Finish()
	if final != nil {
		written = final
	}
	if err != nil && unmet == nil {
		return cmdline.Requested(err)
	}
	if c.Bool("json") {
		err = cmdline.PrintJSON(c.App.Writer, &gatedReport{written, final != nil, measured})
	} else {
		err = printGated(c, final, measured)
	}
	if err == nil && unmet != nil {
		return unmet
	}
	return err
}

// printGated prints the gate first: it may be what the output is read for.
func printGated(c *cli.Context, final *quantizer.Report, measured *accuracy.Report) error {
	if err := report.Text(c.App.Writer, measured, false); err != nil {
		return err
	}
	if final == nil {
		return nil
	}
	if _, err := fmt.Fprintln(c.App.Writer); err != nil {
		return err
	}
	return PrintReport(c, final)
}
