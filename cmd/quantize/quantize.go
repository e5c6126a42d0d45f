// Package quantize is the command `gq quantize`: a checkpoint becomes a .gqf file.
package quantize

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/filereport"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/divide"
	"github.com/lowbit-go/gq/internal/report"
	"github.com/lowbit-go/gq/quantizer"
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
	if c.IsSet("part") {
		p, err := gq.ParsePart(c.String("part"), os.Getenv)
		if err != nil {
			return cmdline.Usagef("--part: %w", err)
		}
		r, err := gq.QuantizePart(c.Context, src, output(c, opts.Recipe), gq.PartOptions{Part: p, Dry: c.Bool("dry-run")}, opts)
		return cmdline.Show(c, r, err, func(w io.Writer, r *divide.PartReport) error {
			if c.Bool("dry-run") {
				_, err := fmt.Fprintln(w, r.Plan)
				return err
			}
			return printPart(c, w, r)
		})
	}
	if c.Bool("dry-run") {
		plan, err := gq.Plan(c.Context, src, output(c, opts.Recipe), opts)
		return filereport.Plan(c, plan, err)
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
	case r.Alone():
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

func printPart(c *cli.Context, w io.Writer, r *divide.PartReport) error {
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

// options reads the recipe file, and then the flags, which override it. Errors in either are usage
// errors; only an unreadable recipe file is a failure.
func options(c *cli.Context) (opts gq.QuantizeOptions, err error) {
	opts = gq.QuantizeOptions{
		RecipeFile: c.String("recipe"), SaveRecipe: c.String("save-recipe"), ImatrixOut: c.String("imatrix-out"), CalibrateOut: c.String("calibrate-out"),
		Keep: c.Bool("keep"), Requantize: c.Bool("requantize"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c),
	}
	err = cmp.Or(
		cmdline.Needs(c, append(cmdline.Names(measure.TextFlags(""))[1:], "keep"), "gate"),
		cmdline.Excludes(c, []string{"gate"}, "dry-run"),
		cmdline.Excludes(c, []string{"algorithm"}, "quality"),
		cmdline.Excludes(c, sizes[:1], sizes[1:]...),
		cmdline.Excludes(c, sizes[1:2], sizes[2]),
		cmdline.Excludes(c, []string{"bits"}, sizes...),
	)
	if err != nil {
		return opts, err
	}
	if opts.Split, err = cmdline.Size(c, "split"); err != nil {
		return opts, err
	}
	if c.IsSet("recipe") {
		if opts.Recipe, err = cmdline.Recipe(c.Context, opts.RecipeFile); err != nil {
			return opts, err
		}
	}
	// a preset given as a flag overrides the recipe's values of its settings
	if r := &opts.Recipe; c.IsSet("quality") {
		r.Algorithm, r.Calibrate, r.CalibrateTokens, r.Refine = gqf.AlgorithmNone, "", 0, nil
	}
	if err := cmdline.Override(c, &opts.Recipe); err != nil {
		return opts, err
	}
	for _, s := range c.StringSlice("rule") {
		rule, err := quantizer.ParseRule(s)
		if err != nil {
			return opts, &cmdline.UsageError{Err: err}
		}
		opts.Rules = append(opts.Rules, rule)
	}
	if c.IsSet("gate") {
		m, err := measure.Options(c)
		if err != nil {
			return opts, err
		}
		opts.Measure = &m
	}
	opts.Budget, err = budget(c, opts.Recipe)
	return opts, err
}

// sizes are the flags of a budget.
var sizes = []string{"target-bpw", "target-size", "max-kl"}

func budget(c *cli.Context, r quantizer.Recipe) (*gq.Budget, error) {
	b := gq.Budget{EmbeddingFixed: c.IsSet("embedding-bits")}
	for name, to := range map[string]*float64{"target-bpw": &b.BitsPerWeight, "max-kl": &b.MaxKL} {
		if !c.IsSet(name) {
			continue
		}
		v, err := strconv.ParseFloat(c.String(name), 64)
		if err != nil || !(v > 0) || math.IsInf(v, 0) {
			return nil, cmdline.Usagef("--%s %s: a number above 0", name, c.String(name))
		}
		*to = v
	}
	var err error
	if b.FileBytes, err = cmdline.Size(c, "target-size"); err != nil {
		return nil, err
	}
	if b.BitsPerWeight == 0 && b.MaxKL == 0 && b.FileBytes == 0 {
		return nil, nil
	}
	if c.IsSet("group") {
		b.Groups = []int{*r.Group}
	}
	return &b, nil
}

// Categories of the flags, in the order of help.
const (
	basics  = "Basics"
	quality = "Quality"
	size    = "Size to meet"
	gate    = "Gate"
)

// flags lists the flags of gq quantize. Only --help-all shows the flags of the category Advanced.
func flags() []cli.Flag {
	return slices.Concat(
		[]cli.Flag{&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Category: basics, DefaultText: "model.gqf, model.gguf or model-TARGET", Usage: "`FILE` to write: a name in .gqf or .gguf, or s3://BUCKET/KEY; or a new directory, for a checkpoint"}},
		cmdline.Settings(basics, "bits", "group", "embedding-bits", "target"),
		[]cli.Flag{
			&cli.StringSliceFlag{Name: "rule", Category: basics, Usage: "`RULE`: NAME=bits[,group][,mapping]... or NAME=skip; NAME is a tensor, a module, a glob (*.q_proj) or re:REGEXP (repeatable)"},
			&cli.StringFlag{Name: "recipe", Category: basics, Usage: "YAML `FILE` with settings and rules; flags win"},
			&cli.StringFlag{Name: "save-recipe", Category: basics, Usage: "write the whole recipe to `FILE`, for --recipe"},
			&cli.StringFlag{Name: "part", Category: basics, Usage: "`I/N`: make part I of N, from 0, for gq merge; /N or auto: by a Kubernetes or Slurm array; with --dry-run print the plan"},
			&cli.BoolFlag{Name: "dry-run", Category: basics, Usage: "print plan, exact size, time and memory; write nothing"},
			cmdline.JSON(),
			cmdline.Quiet(),
		},
		cmdline.Settings(quality, "quality", "algorithm", "calibrate", "tune", "fold"),
		cmdline.Settings(basics, "lora"),
		[]cli.Flag{
			&cli.StringFlag{Name: "target-bpw", Category: size, Usage: "choose each tensor's bits, group and mapping for at most `N` bits per quantized weight; with --quality max, the best file at a size"},
			&cli.StringFlag{Name: "target-size", Category: size, Usage: "for a file of at most `SIZE`: 700MB, 650MiB"},
			&cli.StringFlag{Name: "max-kl", Category: size, Usage: "make the smallest file with at most `NATS` of KL divergence per token"},
		},
		cmdline.Settings(cmdline.Advanced, "layout", "mapping", "scale-dtype", "positive-scales", "allow-unquantized", "embedding-group", "calibrate-tokens", "seed", "tune-tokens", "tune-text", "refine", "imatrix"),
		[]cli.Flag{
			&cli.StringFlag{Name: "imatrix-out", Category: cmdline.Advanced, Usage: "`FILE` for the importance matrix"},
			&cli.StringFlag{Name: "calibrate-out", Category: cmdline.Advanced, Usage: "`FILE` for the text of calibration, or for token ids if the name ends in .ids"},
		},
		cmdline.Settings(cmdline.Advanced, "hash", "pre"),
		[]cli.Flag{
			cmdline.Split(cmdline.Advanced),
			&cli.BoolFlag{Name: "requantize", Category: cmdline.Advanced, Usage: "quantize weights that are quantized already once more"},
			&cli.BoolFlag{Name: "keep", Category: cmdline.Advanced, Usage: "leave the file although the --gate is not met"},
			cmdline.Threads(),
		},
		slices.DeleteFunc(measure.TextFlags(gate), func(f cli.Flag) bool { return slices.Contains(ofAccuracy, f.Names()[0]) }),
	)
}

// ofAccuracy are flags of gq accuracy that gq quantize does not have.
var ofAccuracy = []string{"stride", "activations", "max-questions"}

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
