// Package accuracy is the command `gq accuracy`: what does quantization cost?
package accuracy

import (
	"errors"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/accuracy/report"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
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
		Flags: append(measure.TextFlags("Text and gate"),
			&cli.StringFlag{Name: "baseline", Usage: "another .gqf or .gguf `FILE`, run on the same text"},
			&cli.StringFlag{Name: "reference", Usage: "`FILE` of --save-reference, with the text and the checkpoint's predictions; SRC may be left out, and tensors are not compared then; or a directory that keeps such files by content, for more measurements on the same text"},
			&cli.StringFlag{Name: "save-reference", Usage: "run the checkpoint SRC alone on a text, and write its predictions to `FILE`"},
			&cli.StringFlag{Name: "tensors", DefaultText: "all", Usage: "`PATTERN` of the tensors to compare: a name, a module, a glob (*.q_proj) or re:REGEXP"},
			&cli.BoolFlag{Name: "activation-share", Usage: "run the file with float32 activations too (slower), and report the share of the KL divergence that int8 activations cause"},
			&cli.BoolFlag{Name: "no-outputs", Usage: "leave out the layers as executed"},
			&cli.BoolFlag{Name: "verbose", Usage: "list all tensors and conditions, and figures by position in the window"},
			cmdline.JSON("the report"),
			cmdline.Quiet(),
			&cli.StringFlag{Name: "calibration", Category: cmdline.Advanced, DefaultText: "text, if there is one", Usage: "`INPUTS` that layers are executed on: text or random"},
			&cli.StringFlag{Name: "parity", Category: cmdline.Advanced, Value: "native", Usage: "`KERNELS` to hold to the portable reference: native, arm64 or amd64 (another build of gq; several, separated by commas), or none"},
			&cli.StringFlag{Name: "parity-binary", Category: cmdline.Advanced, Usage: "`FILE`: the other build"},
			&cli.StringFlag{Name: "parity-cpus", Category: cmdline.Advanced, Value: "max", Usage: "`LIST` of qemu's CPU models to run the other build on"},
			&cli.BoolFlag{Name: "parity-digest", Hidden: true},
			cmdline.Threads(),
		),
		Action: run,
	}
}

func run(c *cli.Context) error {
	if c.Bool("parity-digest") {
		return digest(c)
	}
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
	return o, parity(c, &o)
}

// parity reads the parity flags.
func parity(c *cli.Context, o *gq.MeasureOptions) error {
	list := strings.Split(c.String("parity"), ",")
	for _, s := range list {
		switch s {
		case "none":
			if len(list) > 1 {
				return cmdline.Usagef("--parity none goes with nothing else")
			}
		case "native":
			o.Parity = true
		case "arm64", "amd64":
			if o.Remote != nil {
				return cmdline.Usagef("--parity %s: one other build at a time", c.String("parity"))
			}
			o.Remote = &accuracy.RemoteOptions{Arch: s, Binary: c.String("parity-binary"), CPUs: strings.Split(c.String("parity-cpus"), ",")}
		default:
			return cmdline.Usagef("--parity %s: use native, arm64, amd64 or none", s)
		}
	}
	if c.IsSet("parity-binary") && o.Remote == nil {
		// The binary determines the architecture; if it is not given, expect the one that this
		// machine is not.
		arch := "arm64"
		if runtime.GOARCH == arch {
			arch = "amd64"
		}
		o.Remote = &accuracy.RemoteOptions{Arch: arch, Binary: c.String("parity-binary"), CPUs: strings.Split(c.String("parity-cpus"), ",")}
	}
	if o.Remote != nil && slices.Contains(o.Remote.CPUs, "") {
		return cmdline.Usagef("--parity-cpus %q names no CPU", c.String("parity-cpus"))
	}
	if c.IsSet("parity-cpus") && o.Remote == nil {
		return cmdline.Usagef("--parity-cpus goes with --parity arm64 or amd64")
	}
	return nil
}

// digest prints the hashes of this build's kernel outputs for a file, for another build to compare.
func digest(c *cli.Context) error {
	if c.NArg() != 1 {
		return errors.New("--parity-digest wants one .gqf file")
	}
	d, err := gq.ParityDigest(c.Context, c.Args().First(), c.Int("threads"))
	if err != nil {
		return err
	}
	return cmdline.PrintJSON(c.App.Writer, d)
}
