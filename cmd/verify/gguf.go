package verify

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

func verifyGGUF(c *cli.Context, path string, o gq.VerifyOptions) error {
	report, err := gq.VerifyGGUF(c.Context, path, o)
	if err != nil {
		return err
	}
	ok := len(report.NotFinite) == 0
	if c.Bool("json") {
		err = cmdline.PrintJSON(c.App.Writer, ggufResult{ok, report})
	} else {
		err = printGGUF(c.App.Writer, report)
	}
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s has weights that are no numbers, in %d of %d tensors", report.File, len(report.NotFinite), report.Tensors)
	}
	return nil
}

// ggufResult is what --json prints.
type ggufResult struct {
	OK bool `json:"ok"`
	*gq.GGUFReport
}

func printGGUF(w io.Writer, r *gq.GGUFReport) error {
	for _, line := range r.NotFinite {
		if _, err := fmt.Fprintln(w, cmdline.Text(line)); err != nil {
			return err
		}
	}
	if r.NoModel != "" {
		if _, err := fmt.Fprintf(w, "gq cannot run or repack this model: %s\n", cmdline.Text(r.NoModel)); err != nil {
			return err
		}
	}
	if len(r.NotFinite) > 0 {
		return nil
	}
	weights := "all weights are numbers"
	switch {
	case !r.Weights:
		weights = "weights not looked at"
	case r.Unread > 0:
		weights = fmt.Sprintf("all weights are numbers but those of %d tensors, whose types gq cannot read", r.Unread)
	}
	shards := ""
	if r.Shards > 1 {
		shards = fmt.Sprintf("%d shards, ", r.Shards)
	}
	_, err := fmt.Fprintf(w, "%s: structure ok, no checksums in this format (%s: %s%d keys, %d tensors, %s)\n",
		cmdline.Text(r.File), cmdline.Bytes(r.Bytes), shards, r.Keys, r.Tensors, weights)
	return err
}
