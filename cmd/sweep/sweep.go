// Package sweep is the command `gq sweep`: which recipe is worth its size?
package sweep

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/report"
	"github.com/lowbit-go/gq/quantizer"
)

// Command gives `gq sweep`.
func Command() *cli.Command {
	return &cli.Command{
		Name:      "sweep",
		Usage:     "compare size, accuracy and speed of several files or recipes",
		ArgsUsage: "SRC [FILE...]",
		Description: "SRC is an unquantized checkpoint, FILE a quantized model: a .gqf or .gguf file, or a checkpoint. Each\n" +
			"recipe makes a .gqf file. All files are measured on the text as gq accuracy does it. The float model runs once; recipes share what they can. With -o the files stay, and\n" +
			"a later sweep in that directory makes only what is missing. An interrupted sweep resumes.\n" +
			"Exit status: 0 measured, and every file meets the gate (if one was given); 3 some do not; 1 failed;\n" +
			"2 used wrongly.",
		UsageText: `# all combinations, measured and dropped
gq sweep Llama-3.2-1B --bits 3,4,5 --algorithm search,gptq-ft --text sample.txt
# recipe files; the .gqf files and a page with a plot stay
gq sweep Llama-3.2-1B --recipes a.yaml,b.yaml --text sample.txt -o out --report out/sweep.html
# which of the files to keep
gq sweep Llama-3.2-1B *-Q*.gguf *.gqf --text sample.txt --report files.html
# exit status 3 if a file lost more than the gate allows
gq sweep Llama-3.2-1B --bits 4,5,6 --text sample.txt --gate gate.yaml --report sweep.csv
`,
		Flags:  flags(),
		Action: run,
	}
}

// flags lists the flags of a measurement, without the flags that only make sense for a single file.
func flags() []cli.Flag {
	list := []cli.Flag{
		&cli.StringSliceFlag{Name: "recipes", Usage: "recipe `FILES` (YAML), separated by commas; their names without .yaml name the recipes (repeatable)"},
		&cli.StringFlag{Name: "bits", Usage: "`LIST` of bits, separated by commas, to combine with --group and --algorithm"},
		&cli.StringFlag{Name: "group", Usage: "`LIST` of group sizes: multiples of 16, or channel"},
		&cli.StringFlag{Name: "algorithm", Usage: "`LIST` of algorithms: search, rtn, imatrix, awq, gptq or gptq-ft"},
		&cli.StringFlag{Name: "calibrate", DefaultText: "self", Usage: "`FILE` of text or token ids to calibrate on; self: the model writes the text"},
		cmdline.Settings("", "lora")[0],
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, DefaultText: "none: files are dropped when they are measured", Usage: "`DIRECTORY` for the files"},
		&cli.StringSliceFlag{Name: "report", Usage: "`FILE` for a report: .html, .csv, .json, .md or .txt (repeatable)"},
		&cli.StringFlag{Name: "reference", Usage: "`DIRECTORY` that keeps the float model's predictions by content, also for gq accuracy"},
		&cli.BoolFlag{Name: "activation-share", Usage: "report the share of the KL divergence that int8 activations cause (slower)"},
		cmdline.JSON(),
		cmdline.Quiet(),
		cmdline.Threads(),
	}
	single := []string{"report", "tensors-only", "against"}
	for _, f := range measure.TextFlags("Text and gate") {
		if !slices.Contains(single, f.Names()[0]) {
			list = append(list, f)
		}
	}
	return list
}

func run(c *cli.Context) error {
	if c.NArg() == 0 {
		return cmdline.Usagef("gq sweep wants SRC, the unquantized checkpoint, and quantized files or recipes to compare")
	}
	o := gq.SweepOptions{Output: c.String("output"), Files: c.Args().Tail()}
	var err error
	if o.Recipes, err = recipes(c); err != nil {
		return err
	}
	if o.Measure, err = measure.Options(c); err != nil {
		return err
	}
	o.Measure.Reference, o.Measure.ActivationShare = c.String("reference"), c.Bool("activation-share")
	for _, name := range []string{"output", "reference"} {
		if c.IsSet(name) && c.String(name) == "" {
			return cmdline.Usagef("--%s: an empty name names no directory", name)
		}
	}
	r, err := gq.Sweep(c.Context, c.Args().First(), o)
	if err != nil {
		return err
	}
	warn(c, r)
	if c.Bool("json") {
		err = cmdline.PrintJSON(c.App.Writer, r)
	} else {
		err = report.SweepText(c.App.Writer, r)
	}
	return errors.Join(err, gq.SweepVerdict(r))
}

// warn prints the warnings on standard error, each of them once.
func warn(c *cli.Context, r *accuracy.SweepReport) {
	of := map[string][]string{}
	var order []string
	for _, f := range r.Files {
		for _, w := range f.Warnings {
			if of[w] == nil {
				order = append(order, w)
			}
			of[w] = append(of[w], f.Name)
		}
	}
	for _, w := range order {
		fmt.Fprintf(c.App.ErrWriter, "gq: warning: %s: %s\n", strings.Join(of[w], ", "), w)
	}
}

func recipes(c *cli.Context) ([]gq.SweepRecipe, error) {
	lists := []string{"bits", "group", "algorithm"}
	if !c.IsSet("recipes") {
		return crossed(c)
	}
	for _, name := range append(lists, "calibrate", "lora") {
		if c.IsSet(name) {
			return nil, cmdline.Usagef("--%s beside --recipes, which state it: leave one of them out", name)
		}
	}
	var list []gq.SweepRecipe
	for _, path := range strings.Split(strings.Join(c.StringSlice("recipes"), ","), ",") {
		if path == "" {
			return nil, cmdline.Usagef("--recipes: an empty name names no file")
		}
		recipe, err := cmdline.Recipe(c.Context, path)
		if err != nil {
			return nil, err
		}
		list = append(list, gq.SweepRecipe{Name: strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), File: path, Recipe: recipe})
	}
	return list, nil
}

func crossed(c *cli.Context) ([]gq.SweepRecipe, error) {
	bits, err := values(c, "bits", func(r *quantizer.Recipe) int { return r.Bits })
	if err != nil {
		return nil, err
	}
	groups, err := values(c, "group", func(r *quantizer.Recipe) int { return *r.Group })
	if err != nil {
		return nil, err
	}
	algorithms, err := values(c, "algorithm", func(r *quantizer.Recipe) gqf.Algorithm { return r.Algorithm })
	if err != nil {
		return nil, err
	}
	switch {
	case bits == nil && groups == nil && algorithms == nil:
		if c.NArg() == 1 {
			return nil, cmdline.Usagef("which files? --recipes names recipe files; --bits, --group and --algorithm are lists to combine; or name quantized files after SRC")
		}
		for _, name := range []string{"calibrate", "lora", "output"} {
			if c.IsSet(name) {
				return nil, cmdline.Usagef("--%s goes with recipes, or with --bits, --group or --algorithm: leave it out to compare files", name)
			}
		}
		return nil, nil
	case c.IsSet("calibrate") && !slices.ContainsFunc(algorithms, gqf.Algorithm.Calibrated):
		return nil, cmdline.Usagef("--calibrate goes with algorithm gptq, gptq-ft, imatrix or awq")
	}
	return gq.CrossRecipes(quantizer.Recipe{Calibrate: c.String("calibrate"), Lora: c.StringSlice("lora")}, bits, groups, algorithms), nil
}

// values reads a list of values of a setting. of returns the value that a recipe has.
func values[T comparable](c *cli.Context, name string, of func(*quantizer.Recipe) T) ([]T, error) {
	setting, _ := quantizer.SettingOf(name)
	return cmdline.List(c, name, func(s string) (v T, err error) {
		var r quantizer.Recipe
		if err := setting.Set(&r, s); err != nil {
			return v, err
		}
		return of(&r), nil
	})
}
