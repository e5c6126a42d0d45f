// Package quantize is the command `gq quantize`: a checkpoint becomes a .gqf file.
package quantize

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/divide"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/urfave/cli/v2"
)

// Command gives `gq quantize`.
func Command() *cli.Command {
	return &cli.Command{
		Name:      "quantize",
		Usage:     "turn a checkpoint, safetensors or .gguf, into a .gqf file of packed low-bit weights",
		ArgsUsage: "[SRC]",
		UsageText: `# 4 bits, groups of 32
gq quantize Llama-3.2-1B --bits 4 --group 32 -o model.gqf
# calibrated on text that the model writes itself, of at most 700 MB
gq quantize Llama-3.2-1B --quality good --target-size 700MB -o model.gqf
# for PyTorch on Arm; no file if the model lost more than the gate allows
gq quantize Llama-3.2-1B --target pytorch-aarch64 --gate gate.yaml --text sample.txt
# one of four workers; gq merge joins their parts
gq quantize Llama-3.1-405B --part 0/4 -o model.gqf
`,
		Description: "SRC is a .safetensors file or a directory that holds a checkpoint, sharded or not\n" +
			"(default: the current directory), or a .gguf file; its weights are unquantized, or see gq repack.\n" +
			"With --gate the result is measured as gq accuracy does it, and if the gate is not met, no file is\n" +
			"left and the exit status is 3.",
		Flags:  flags(),
		Action: run,
	}
}

func run(c *cli.Context) error {
	opts, err := options(c)
	if err != nil {
		return err
	}
	src, err := source(c)
	if err != nil {
		return err
	}
	p, err := part(c)
	if err != nil {
		return err
	}
	if p != nil {
		return runPart(c, src, p, opts)
	}
	if c.Bool("dry-run") {
		plan, err := gq.Plan(c.Context, src, output(c, opts.Recipe), opts)
		if err != nil {
			return err
		}
		return filereport.Plan(c, plan)
	}
	r, err := gq.Quantize(c.Context, src, output(c, opts.Recipe), opts)
	if r == nil {
		return err
	}
	return errors.Join(printResult(c, r), err)
}

// output returns the path of the file or directory to write: the flag, or a name with the target's.
func output(c *cli.Context, r quantizer.Recipe) string {
	switch {
	case c.IsSet("output"):
		return c.String("output")
	case r.ForGGUF():
		return "model.gguf"
	case r.CheckpointFormat() != "":
		return "model-" + r.Targets[0].Name
	}
	return "model.gqf"
}

// source returns the checkpoint's path: the positional argument, or the current directory.
func source(c *cli.Context) (string, error) {
	switch c.NArg() {
	case 0:
		if !safetensors.IsCheckpoint(".") {
			return "", cmdline.Usagef("the current directory holds no checkpoint (*.safetensors): name one, gq quantize SRC")
		}
		return ".", nil
	case 1:
		return c.Args().First(), nil
	}
	return "", cmdline.Usagef("one checkpoint at a time: %s are %d", strings.Join(c.Args().Slice(), " "), c.NArg())
}

// part reads the flags of a part; nil without.
func part(c *cli.Context) (*gq.PartOptions, error) {
	if !c.IsSet("part") {
		return nil, nil
	}
	p, err := gq.ParsePart(c.String("part"), os.Getenv)
	if err != nil {
		return nil, cmdline.Usagef("--part: %w", err)
	}
	return &gq.PartOptions{Part: p, Dry: c.Bool("dry-run")}, nil
}

// runPart makes and reports a part.
func runPart(c *cli.Context, src string, p *gq.PartOptions, opts gq.QuantizeOptions) error {
	r, err := gq.QuantizePart(c.Context, src, output(c, opts.Recipe), *p, opts)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return cmdline.PrintJSON(c.App.Writer, r)
	}
	if p.Dry {
		_, err := fmt.Fprintln(c.App.Writer, r.Plan)
		return err
	}
	return printPart(c, r)
}

func printPart(c *cli.Context, r *divide.PartReport) error {
	w := c.App.Writer
	for _, s := range r.Warnings {
		fmt.Fprintf(c.App.ErrWriter, "gq: warning: %s\n", s)
	}
	what := "wrote   "
	if r.Found {
		what = "found   "
	}
	fmt.Fprintf(w, "%s %s\n", what, cmdline.Text(r.Output))
	fmt.Fprintf(w, "part     %d/%d: %d of %d units, %s of the checkpoint -> %s, plan %s\n", r.Index, r.Of, r.Units, r.AllUnits, cmdline.Bytes(r.SourceBytes), cmdline.Bytes(r.DataBytes), r.Plan)
	_, err := fmt.Fprintf(w, "time     %.2f s; gq merge --plan %s joins the parts when all are there\n", r.Seconds, r.Plan)
	return err
}
