// Package quantize is the command `gq quantize`: a checkpoint becomes a .gqf file.
package quantize

import (
	"cmp"
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
	"github.com/lowbit-go/gq/formats/safetensors"
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
		if opts.Measure != nil {
			return cmdline.Usagef("--dry-run writes nothing that a --gate could be for")
		}
		plan, err := gq.Plan(c.Context, src, output(c, opts.Format), opts)
		if err != nil {
			return err
		}
		return filereport.Plan(c, plan)
	}
	r, err := gq.Quantize(c.Context, src, output(c, opts.Format), opts)
	if r == nil {
		return err
	}
	return errors.Join(printResult(c, r), err)
}

// output returns the path of the file or directory to write: the flag, or a name with the format's.
func output(c *cli.Context, f gq.Format) string {
	if c.IsSet("output") {
		return c.String("output")
	}
	if f = cmp.Or(f, gq.FormatGQF); f.IsDirectory() {
		return "model-" + string(f)
	}
	return "model." + string(f)
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
