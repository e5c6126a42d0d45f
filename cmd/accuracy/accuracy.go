// Package accuracy is the command `gq accuracy`: what does quantization cost?
package accuracy

import (
	"fmt"
	"io"
	"slices"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/internal/report"
	"github.com/urfave/cli/v2"
)

// Command gives `gq accuracy`.
func Command() *cli.Command {
	return &cli.Command{
		Name:      "accuracy",
		Usage:     "measure what quantization cost, and hold it to a gate",
		ArgsUsage: "[SRC] FILE",
		Description: "SRC is the unquantized checkpoint that FILE was made of: a .gqf or .gguf file, or a quantized checkpoint.\n" +
			"Tensors are always compared; with a text, both models are run on it and their predictions compared. Of\n" +
			"a .gguf file or a quantized checkpoint, codes that a .gqf file holds (Q4_0, GPTQ ...) run through gq's\n" +
			"kernels, other tensors in float32.\n" +
			"Exit status: 0 measured, and the gate (if one was given) is met; 3 it is not; 1 failed; 2 used wrongly.",
		UsageText: `# tensors, layers and, on a text, the models' predictions
gq accuracy Llama-3.2-1B model.gqf --text sample.txt --report accuracy.html
# exit status 3 if the file lost more than the gate allows
gq accuracy Llama-3.2-1B model.gqf --text sample.txt --gate gate.yaml
# two quantizations on one text
gq accuracy Llama-3.2-1B good.gqf --baseline fast.gqf --text sample.txt
# the checkpoint's predictions, saved once: CI needs no checkpoint
gq accuracy Llama-3.2-1B --text sample.txt --save-reference sample.logits
gq accuracy model.gqf --reference sample.logits --gate gate.yaml
# two texts, each with figures and a gate of its own
gq accuracy Llama-3.2-1B model.gqf --text prose.txt --text code.txt --gate gate.yaml
# multiple choice: JSON lines of your own, HellaSwag, ARC or MMLU
gq accuracy Llama-3.2-1B model.gqf --choices hellaswag.jsonl --max-questions 1000
`,
		Flags: append(append(measure.TextFlags("Text and gate"), cmdline.Settings("", "lora")...),
			&cli.StringFlag{Name: "baseline", Usage: "another .gqf or .gguf `FILE`, run on the same text"},
			&cli.StringFlag{Name: "reference", Usage: "`FILE` of --save-reference: SRC may be left out, and tensors are not compared then; or a directory that keeps such files"},
			&cli.StringFlag{Name: "save-reference", Usage: "run the checkpoint SRC alone on a text, and write its predictions to `FILE`"},
			&cli.StringFlag{Name: "tensors", DefaultText: "all", Usage: "`PATTERN` of the tensors to compare, without a gate: a name, a module, a glob (*.q_proj) or re:REGEXP"},
			&cli.BoolFlag{Name: "activation-share", Usage: "report the share of the KL divergence that int8 activations cause (slower)"},
			&cli.BoolFlag{Name: "no-outputs", Usage: "leave out the layers as executed"},
			&cli.BoolFlag{Name: "verbose", Usage: "list all tensors and conditions, and figures by position in the window"},
			cmdline.JSON(),
			cmdline.Quiet(),
			&cli.StringFlag{Name: "calibration", Category: cmdline.Advanced, DefaultText: "text, if there is one", Usage: "`INPUTS` that layers are executed on: text or random"},
			&cli.BoolFlag{Name: "no-parity", Usage: "leave out the comparison of this machine's kernels with the portable reference"},
			cmdline.Threads(),
		),
		Action: run,
	}
}

func run(c *cli.Context) error {
	if c.IsSet("save-reference") {
		return save(c)
	}
	src, file := c.Args().Get(0), c.Args().Get(1)
	switch n := c.NArg(); {
	case n == 1 && c.String("reference") != "":
		src, file = "", src
	case n != 2:
		return cmdline.Usagef("gq accuracy wants a checkpoint and a .gqf or .gguf file, got %d arguments", n)
	}
	o, err := options(c)
	if err != nil {
		return err
	}
	r, err := gq.Measure(c.Context, src, file, o)
	if err != nil {
		return err
	}
	measure.Warn(c, r)
	if c.Bool("json") {
		err = cmdline.PrintJSON(c.App.Writer, r)
	} else {
		err = report.Text(c.App.Writer, r, report.TextOptions{Verbose: c.Bool("verbose"), Color: cmdline.Color(c.App.Writer)})
	}
	if err != nil {
		return err
	}
	return gq.Verdict(r)
}

// options reads the flags.
func options(c *cli.Context) (gq.MeasureOptions, error) {
	o, err := measure.Options(c)
	if err != nil {
		return o, err
	}
	o.Lora = c.StringSlice("lora")
	o.ActivationShare = c.Bool("activation-share")
	o.Baseline, o.Tensors, o.NoOutputs = c.String("baseline"), c.String("tensors"), c.Bool("no-outputs")
	if o.Reference = c.String("reference"); c.IsSet("reference") && o.Reference == "" {
		return o, cmdline.Usagef("--reference: an empty name names no file")
	}
	switch s := c.String("calibration"); {
	case s == "random":
		o.RandomInputs = true
	case s == "text" && len(o.Texts) == 0:
		return o, cmdline.Usagef("--calibration text goes with --text or --tokens")
	case s != "text" && c.IsSet("calibration"):
		return o, cmdline.Usagef("--calibration %s: use text or random", s)
	}
	o.Parity = !c.Bool("no-parity")
	return o, nil
}

var saveFlags = []string{"save-reference", "lora", "text", "tokens", "convention", "window", "stride", "max-tokens", "threads", "json", "quiet"}

// save runs the checkpoint on a text and saves its predictions.
func save(c *cli.Context) error {
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		if !slices.Contains(saveFlags, name) && c.IsSet(name) {
			return cmdline.Usagef("--%s does not go with --save-reference, which runs the checkpoint alone", name)
		}
	}
	switch o, err := measure.Options(c); {
	case err != nil:
		return err
	case c.NArg() != 1:
		return cmdline.Usagef("--save-reference wants a checkpoint and nothing else, got %d arguments", c.NArg())
	case len(o.Texts) != 1:
		return cmdline.Usagef("--save-reference wants one --text or --tokens, got %d", len(o.Texts))
	default:
		r, err := gq.SaveReference(c.Context, c.Args().First(), c.String("save-reference"), gq.ReferenceOptions{
			Text: o.Texts[0], Windows: o.Windows, Lora: c.StringSlice("lora"), Version: o.Version, Threads: o.Threads, Progress: o.Progress,
		})
		return cmdline.Show(c, r, err, func(w io.Writer, r *gq.ReferenceReport) error {
			_, err := fmt.Fprintf(w, "wrote    %s\ntext     %s, %d tokens scored\nsize     %s, %.2f bytes per logit\n",
				cmdline.Text(r.File), cmdline.Text(r.Text.Name), r.Scored, cmdline.Bytes(r.Bytes), float64(r.Bytes)/float64(r.Scored)/float64(r.Vocab))
			return err
		})
	}
}
