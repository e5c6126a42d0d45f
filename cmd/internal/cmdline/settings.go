package cmdline

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/urfave/cli/v2"
)

func Settings(category string, names ...string) (flags []cli.Flag) {
	for _, name := range names {
		s, _ := quantizer.SettingOf(name)
		usage := fmt.Sprintf("`%s`: %s", s.Value, s.Help)
		switch {
		case s.Value == "":
			flags = append(flags, &cli.BoolFlag{Name: name, Category: category, Usage: s.Help})
		case s.List:
			flags = append(flags, &cli.StringSliceFlag{Name: name, Category: category, Usage: usage + " (repeatable)"})
		default:
			flags = append(flags, &cli.StringFlag{Name: name, Category: category, DefaultText: s.Default, Usage: usage})
		}
	}
	return flags
}

func Override(c *cli.Context, r *quantizer.Recipe) error {
	for _, s := range quantizer.Settings() {
		if !c.IsSet(s.Name) {
			continue
		}
		values := []string{c.String(s.Name)}
		switch {
		case s.Value == "":
			values = []string{strconv.FormatBool(c.Bool(s.Name))}
		case s.List:
			values = c.StringSlice(s.Name)
		}
		if err := s.Set(r, values...); err != nil {
			return Usagef("--%s: %w", s.Name, err)
		}
	}
	return nil
}

// Recipe reads a recipe file. A signal does not wait for the parser: 100,000 rules take it seconds.
func Recipe(ctx context.Context, path string) (quantizer.Recipe, error) {
	return files.Await(ctx, func() (r quantizer.Recipe, err error) {
		raw, err := files.ReadContext(ctx, path, files.MaxYAML)
		if err != nil {
			return r, fmt.Errorf("recipe: %w", err)
		}
		if r, err = quantizer.ParseRecipe(path, raw); err != nil {
			err = &UsageError{Err: err}
		}
		return r, err
	})
}

// Needs refuses given flags unless one of others is given.
func Needs(c *cli.Context, flags []string, others ...string) error {
	return each(c, flags, func(name string) error {
		if len(given(c, others)) > 0 {
			return nil
		}
		return Usagef("--%s goes with --%s", name, strings.Join(others, " or --"))
	})
}

func Excludes(c *cli.Context, flags []string, others ...string) error {
	return each(c, flags, func(name string) error {
		if list := given(c, others); len(list) > 0 {
			return Usagef("--%s beside --%s: give one of them", name, list[0])
		}
		return nil
	})
}

func each(c *cli.Context, flags []string, check func(name string) error) error {
	for _, name := range given(c, flags) {
		if err := check(name); err != nil {
			return err
		}
	}
	return nil
}

func given(c *cli.Context, flags []string) (list []string) {
	for _, name := range flags {
		if c.IsSet(name) {
			list = append(list, name)
		}
	}
	return list
}

func Names(flags []cli.Flag) (names []string) {
	for _, f := range flags {
		names = append(names, f.Names()[0])
	}
	return names
}

// Size reads a flag that states a number of bytes; 0 if it is not given.
func Size(c *cli.Context, name string) (int64, error) {
	if !c.IsSet(name) {
		return 0, nil
	}
	n, err := ParseBytes(c.String(name))
	if err != nil {
		return 0, Usagef("--%s: %w", name, err)
	}
	return n, nil
}

func Split(category string) cli.Flag {
	return &cli.StringFlag{Name: "split", Category: category, DefaultText: "one .gguf file; 5GB for checkpoints", Usage: "`SIZE` of a .gguf file or of a checkpoint's files, at most: a larger model is divided"}
}

// Exactly is an action that refuses another number of arguments than the command's ArgsUsage shows.
func Exactly(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if want := len(strings.Fields(c.Command.ArgsUsage)); c.NArg() != want {
			return Usagef("%s wants %s, %d given", c.Command.HelpName, cmp.Or(c.Command.ArgsUsage, "no arguments"), c.NArg())
		}
		return action(c)
	}
}

func Threads() cli.Flag {
	return Positive(&cli.IntFlag{Name: "threads", Category: common, DefaultText: "GOMAXPROCS", Usage: "`N`: workers; results do not depend on it"})
}

// Positive has a flag refuse numbers below 1, and beyond 2,147,483,647.
func Positive(f *cli.IntFlag) cli.Flag {
	f.Action = func(_ *cli.Context, n int) error {
		if n < 1 || n > math.MaxInt32 {
			return Usagef("--%s %d: at least 1, at most %d", f.Name, n, math.MaxInt32)
		}
		return nil
	}
	return f
}

func JSON() cli.Flag {
	return &cli.BoolFlag{Name: "json", Category: common, Usage: "print the result as JSON"}
}

func Quiet() cli.Flag {
	return &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Category: common, Usage: "show no progress"}
}

// Price reads --price-per-hour. 0: it is not given.
func Price(c *cli.Context) (float64, error) {
	p := c.Float64("price-per-hour")
	if c.IsSet("price-per-hour") && !(p > 0 && p <= math.MaxFloat32) {
		return 0, Usagef("--price-per-hour %v is not above 0", p)
	}
	return p, nil
}
