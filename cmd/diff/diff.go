// Package diff is the command `gq diff`: which tensors of two files differ?
package diff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// Command gives `gq diff`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "diff",
		Usage: "show which tensors of two .gqf or .gguf files, or of a checkpoint and its file, differ",
		UsageText: `gq diff fast.gqf good.gqf
# what became of each tensor
gq diff Llama-3.2-1B model.gqf
gq diff fast.gqf good.gqf --tensors '*.down_proj' --all --json
`,
		ArgsUsage: "A B",
		Description: "A is a .gqf or .gguf file, a quantized checkpoint, or the checkpoint that the file B was made of.\n" +
			"Tensors are compared in scheme, shape and payload bytes, or in shape and weights if one side alone is\n" +
			"no .gqf file; the SQNR is of B's weights against A's. Metadata is not compared.\n" +
			"Exit status, as of diff(1): 0 all tensors are equal, 1 some differ, 2 failed or used wrongly.",
		Flags: append(cmdline.Settings("", "lora"), []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "list equal tensors, too"},
			&cli.StringFlag{Name: "tensors", DefaultText: "all", Usage: "`PATTERN` of the tensors to compare: a name, a module, a glob (*.q_proj) or re:REGEXP"},
			cmdline.Threads(),
			cmdline.JSON(),
			cmdline.Quiet(),
		}...),
		Action: cmdline.Exactly(run),
	}
}

func run(c *cli.Context) error {
	r, err := gq.Diff(c.Context, c.Args().Get(0), c.Args().Get(1), gq.DiffOptions{
		Tensors: c.String("tensors"), All: c.Bool("all"), Lora: c.StringSlice("lora"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c),
	})
	if _, wrong := errors.AsType[*gq.OptionError](err); err != nil && !wrong && !errors.Is(err, context.Canceled) {
		return &cmdline.StatusError{Err: err, Status: 2} // status 1 says that they differ
	}
	if err != nil {
		return err
	}
	if err := cmdline.Show(c, r, nil, print); err != nil {
		return &cmdline.StatusError{Err: err, Status: 2}
	}
	if !r.Equal {
		return errors.New(r.String())
	}
	return nil
}

func print(w io.Writer, r *gq.DiffReport) error {
	if r.Fold != "" {
		fmt.Fprintf(w, "%s was folded as %s was: %s\n\n", cmdline.Text(r.A), cmdline.Text(r.B), r.Fold)
	}
	if len(r.Tensors) > 0 {
		err := cmdline.Table(w, []string{"TENSOR", "DIFFERS IN", "SQNR>", "A", "BYTES>", "B", "BYTES>", "NOTE"}, func(line func(...any)) {
			for i := range r.Tensors {
				t := &r.Tensors[i]
				differs, sqnr := strings.Join(t.Differs, ", "), ""
				switch {
				case t.A == nil:
					differs = "only in B"
				case t.B == nil:
					differs = "only in A"
				case t.SQNR != nil:
					sqnr = t.SQNR.String()
				}
				schemeA, bytesA := side(t.A)
				schemeB, bytesB := side(t.B)
				line(cmdline.Text(t.Name), differs, sqnr, schemeA, bytesA, schemeB, bytesB, t.Note)
			}
		})
		if err != nil {
			return err
		}
	}
	if !r.Equal { // an error on standard error
		return nil
	}
	_, err := fmt.Fprintln(w, r)
	return err
}

// side returns the cells of one side; both are empty if the side lacks the tensor.
func side(s *gq.DiffSide) (scheme, bytes string) {
	if s == nil {
		return "", ""
	}
	return cmdline.Text(s.Scheme), fmt.Sprint(s.Bytes)
}
