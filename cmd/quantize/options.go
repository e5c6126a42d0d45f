package quantize

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/urfave/cli/v2"
)

// options reads the recipe file, and then the flags, which override it. Errors in either are usage
// errors; only an unreadable recipe file is a failure.
func options(c *cli.Context) (opts gq.QuantizeOptions, err error) {
	opts = gq.QuantizeOptions{
		RecipeFile: c.String("recipe"), SaveRecipe: c.String("save-recipe"), ImatrixOut: c.String("imatrix-out"), CalibrateOut: c.String("calibrate-out"),
		Keep: c.Bool("keep"), Requantize: c.Bool("requantize"), Threads: c.Int("threads"), Progress: cmdline.Reporter(c),
	}
	if err := together(c); err != nil {
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

// together refuses flags that do not go together.
func together(c *cli.Context) error {
	return cmp.Or(
		cmdline.Needs(c, append(cmdline.Names(measure.TextFlags(""))[1:], "keep"), "gate"),
		cmdline.Excludes(c, []string{"gate"}, "dry-run"),
		cmdline.Excludes(c, []string{"algorithm"}, "quality"),
		cmdline.Excludes(c, sizes[:1], sizes[1:]...),
		cmdline.Excludes(c, sizes[1:2], sizes[2]),
		cmdline.Excludes(c, []string{"bits"}, sizes...),
	)
}

// budget reads the flags of a budget; nil without.
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
		[]cli.Flag{
			&cli.StringFlag{Name: "target-bpw", Category: size, Usage: "choose each tensor's bits, group and mapping for at most `N` bits per quantized weight"},
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
