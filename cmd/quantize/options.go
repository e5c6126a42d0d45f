package quantize

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/tune"
)

// options reads the recipe file, and then the flags, which override it. Errors in either are usage
// errors; only an unreadable recipe file is a failure.
func options(c *cli.Context) (opts gq.QuantizeOptions, err error) {
	opts = gq.QuantizeOptions{
		SaveRecipe: c.String("save-recipe"), ImatrixOut: c.String("imatrix-out"), CalibrateOut: c.String("calibrate-out"), Keep: c.Bool("keep"), Reuse: c.String("reuse"), Requantize: c.Bool("requantize"),
		Threads: c.Int("threads"), Progress: cmdline.Reporter(c),
	}
	opts.Pre = c.String("pre")
	if opts.Split, err = cmdline.Split(c); err != nil {
		return opts, err
	}
	if err := parse(c, "format", gq.ParseFormat, &opts.Format); err != nil {
		return opts, err
	}
	if path := c.String("recipe"); c.IsSet("recipe") {
		opts.RecipeFile = path
		raw, err := files.ReadContext(c.Context, path, files.MaxYAML)
		if err != nil {
			return opts, fmt.Errorf("recipe: %w", err)
		}
		if opts.Recipe, err = quantizer.ParseRecipe(path, raw); err != nil {
			return opts, &cmdline.UsageError{Err: err}
		}
	}
	if err := override(c, &opts.Recipe); err != nil {
		return opts, err
	}
	for _, s := range c.StringSlice("rule") {
		rule, err := quantizer.ParseRule(s)
		if err != nil {
			return opts, &cmdline.UsageError{Err: err}
		}
		opts.Rules = append(opts.Rules, rule)
	}
	if opts.Measure, err = measured(c); err != nil {
		return opts, err
	}
	opts.Budget, err = budget(c)
	return opts, err
}

// measured reads the flags that go with --gate; nil without --gate.
func measured(c *cli.Context) (*gq.MeasureOptions, error) {
	if !c.IsSet("gate") {
		for _, f := range append(measure.TextFlags(""), &cli.BoolFlag{Name: "keep"}) {
			if name := f.Names()[0]; c.IsSet(name) {
				return nil, cmdline.Usagef("--%s goes with --gate", name)
			}
		}
		return nil, nil
	}
	o, err := measure.Options(c)
	return &o, err
}

// budget reads the flags of a budget; nil without.
func budget(c *cli.Context) (*gq.Budget, error) {
	var b gq.Budget
	var set []string
	for _, f := range []struct {
		name string
		to   *float64
	}{{"target-bpw", &b.BitsPerWeight}, {"max-kl", &b.MaxKL}} {
		if !c.IsSet(f.name) {
			continue
		}
		set = append(set, "--"+f.name)
		v, err := strconv.ParseFloat(c.String(f.name), 64)
		if err != nil || !(v > 0) || math.IsInf(v, 0) {
			return nil, cmdline.Usagef("--%s %s: a number above 0", f.name, c.String(f.name))
		}
		*f.to = v
	}
	if c.IsSet("target-size") {
		set = append(set, "--target-size")
		var err error
		if b.FileBytes, err = cmdline.ParseBytes(c.String("target-size")); err != nil {
			return nil, cmdline.Usagef("--target-size: %w", err)
		}
	}
	switch {
	case len(set) == 0:
		return nil, nil
	case len(set) > 1:
		return nil, cmdline.Usagef("%s: one target at a time", strings.Join(set, " and "))
	case c.IsSet("bits"):
		return nil, cmdline.Usagef("--bits beside %s, which chooses them: leave it out, or fix single tensors with --rule", set[0])
	}
	if c.IsSet("group") {
		group, _ := quantizer.ParseGroup(c.String("group")) // override has checked it
		b.Groups = []int{group}
	}
	b.EmbeddingFixed = c.IsSet("embedding-bits")
	return &b, nil
}

// override replaces values of the recipe by flags.
func override(c *cli.Context, r *quantizer.Recipe) error {
	for _, f := range []struct {
		name string
		to   *int
	}{{"bits", &r.Bits}, {"embedding-bits", &r.EmbeddingBits}} {
		if !c.IsSet(f.name) {
			continue
		}
		// The library reads 0 as the default.
		if *f.to = c.Int(f.name); *f.to < 1 || *f.to > 8 {
			return cmdline.Usagef("--%s %d: use 1 to 8", f.name, *f.to)
		}
	}
	for _, f := range []struct {
		name string
		to   *bool
	}{{"positive-scales", &r.PositiveScales}, {"rotate", &r.Rotate}, {"equalize", &r.Equalize}} {
		if c.IsSet(f.name) {
			*f.to = c.Bool(f.name)
		}
	}
	if c.IsSet("fold") && (c.IsSet("rotate") || c.IsSet("equalize")) {
		return cmdline.Usagef("--fold beside --rotate or --equalize: state --fold alone")
	}
	if (c.IsSet("rotate") || c.IsSet("equalize")) && r.Auto {
		r.Auto = false // a flag wins over the recipe
	}
	if err := overrideCalibration(c, r); err != nil {
		return err
	}
	return cmp.Or(
		parse(c, "group", quantizer.ParseGroup, &r.Group),
		parse(c, "embedding-group", quantizer.ParseGroup, &r.EmbeddingGroup),
		parse(c, "fold", quantizer.ParseFold, &r.Fold),
		parse(c, "mapping", quantizer.ParseMapping, &r.Mapping),
		parse(c, "scale-dtype", quantizer.ParseScaleDtype, &r.ScaleDtype),
		parse(c, "algorithm", quantizer.ParseAlgorithm, &r.Algorithm),
		parse(c, "layout", quantizer.ParseLayouts, &r.Layouts),
		parse(c, "tile", packing.ParseTile, &r.Tile),
		parse(c, "target", quantizer.ParseTargets, &r.Targets),
		parse(c, "hash", quantizer.ParseHash, &r.HashFiles),
	)
}

// overrideCalibration replaces values of presets and calibration by flags.
func overrideCalibration(c *cli.Context, r *quantizer.Recipe) error {
	if c.IsSet("quality") {
		if c.IsSet("algorithm") {
			return cmdline.Usagef("--algorithm beside --quality, which chooses it: state one of them")
		}
		// A preset given as a flag overrides the recipe's values of its settings.
		r.Algorithm, r.Calibrate, r.CalibrateTokens, r.Refine = gqf.AlgorithmNone, "", 0, nil
		if err := parse(c, "quality", quantizer.ParseQuality, &r.Quality); err != nil {
			return err
		}
	}
	if c.IsSet("calibrate") {
		r.Calibrate = c.String("calibrate")
	}
	if c.IsSet("calibrate-tokens") {
		if r.CalibrateTokens = c.Int("calibrate-tokens"); r.CalibrateTokens == 0 { // the library reads 0 as the default
			return cmdline.Usagef("--calibrate-tokens 0: at least 16")
		}
	}
	if c.IsSet("seed") {
		if r.Seed = c.Uint64("seed"); r.Seed == 0 {
			return cmdline.Usagef("--seed 0: at least 1")
		}
	}
	if c.IsSet("refine") {
		r.Refine = new(c.Bool("refine"))
	}
	if err := parse(c, "tune", quantizer.ParseTune, &r.Tune); err != nil {
		return err
	}
	if c.IsSet("tune-tokens") {
		if r.TuneTokens = c.Int("tune-tokens"); r.TuneTokens == 0 { // the library reads 0 as the default
			return cmdline.Usagef("--tune-tokens 0: at least %d", tune.LeastTokens)
		}
	}
	if c.IsSet("tune-text") {
		r.TuneText = c.String("tune-text")
	}
	if c.IsSet("imatrix") {
		r.Imatrix = c.StringSlice("imatrix")
	}
	return nil
}

// parse parses the flag called name, if it was given.
func parse[T any](c *cli.Context, name string, read func(string) (T, error), to *T) error {
	if !c.IsSet(name) {
		return nil
	}
	v, err := read(c.String(name))
	if err != nil {
		return cmdline.Usagef("--%s: %w", name, err)
	}
	*to = v
	return nil
}
