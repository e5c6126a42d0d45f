package quantize

import (
	"cmp"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// options reads the flags: the recipe's file first, then the flags that were given,
// which win over it. What is wrong with either is wrong usage; only a recipe that
// cannot be read is a failure.
func options(c *cli.Context) (quantizer.Options, error) {
	var opts quantizer.Options
	if path := c.String("recipe"); c.IsSet("recipe") {
		raw, err := os.ReadFile(path)
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
	// The plan makes its own set; this one finds before any work what cannot go together.
	if _, err := quantizer.NewRuleSet(opts.Recipe, opts.Rules); err != nil {
		return opts, &cmdline.UsageError{Err: err}
	}
	switch s := c.String("hash"); s {
	case "headers":
	case "sha256":
		opts.HashFiles = true
	default:
		return opts, cmdline.Usagef("--hash %s: headers or sha256", s)
	}
	if opts.Threads = c.Int("threads"); opts.Threads < 0 {
		return opts, cmdline.Usagef("--threads %d: at least 1", opts.Threads)
	}
	return opts, nil
}

// override puts the flags that were given in the place of what the recipe says.
func override(c *cli.Context, r *quantizer.Recipe) error {
	for _, f := range []struct {
		name string
		to   *int
	}{{"bits", &r.Bits}, {"embedding-bits", &r.EmbeddingBits}} {
		if !c.IsSet(f.name) {
			continue
		}
		// 0 would mean the default to the library.
		if *f.to = c.Int(f.name); *f.to < 1 || *f.to > 8 {
			return cmdline.Usagef("--%s %d: use 1 to 8", f.name, *f.to)
		}
	}
	if c.IsSet("positive-scales") {
		r.PositiveScales = c.Bool("positive-scales")
	}
	if c.IsSet("rotate") {
		r.Rotate = c.Bool("rotate")
	}
	if c.IsSet("equalize") {
		r.Equalize = c.Bool("equalize")
	}
	return cmp.Or(
		parse(c, "group", quantizer.ParseGroup, &r.Group),
		parse(c, "embedding-group", quantizer.ParseGroup, &r.EmbeddingGroup),
		parse(c, "mapping", quantizer.ParseMapping, &r.Mapping),
		parse(c, "scale-dtype", quantizer.ParseScaleDtype, &r.ScaleDtype),
		parse(c, "algorithm", quantizer.ParseAlgorithm, &r.Algorithm),
		parse(c, "layout", quantizer.ParseFormats, &r.Formats),
		parse(c, "tile", packing.ParseTile, &r.Tile),
		parse(c, "target", quantizer.ParseTargets, &r.Targets),
	)
}

// parse reads the flag called name, if it was given.
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
