// Package measure reads the flags of a measurement, for `gq accuracy` and `gq quantize --gate`.
package measure

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
)

// TextFlags are the flags about the text, and about the outputs and checks of a measurement. The
// common ones are in the given category of help, the others in cmdline.Advanced.
func TextFlags(category string) []cli.Flag {
	advanced := cmdline.Advanced
	return []cli.Flag{
		&cli.StringFlag{Name: "gate", Category: category, Usage: "`FILE` of conditions (YAML), or default: exit status 3 if one is not met"},
		&cli.StringSliceFlag{Name: "text", Category: category, Usage: "plain-text `FILE` to run the models on, or NAME=FILE (repeatable)"},
		&cli.StringSliceFlag{Name: "tokens", Category: category, Usage: "`FILE` of token ids instead: decimal numbers (repeatable)"},
		&cli.StringSliceFlag{Name: "choices", Category: category, Usage: "`FILE` of questions (JSON lines, HellaSwag, ARC or MMLU), or NAME=FILE (repeatable)"},
		&cli.StringSliceFlag{Name: "report", Category: category, Usage: "`FILE` for a report: .html, .md, .xml (JUnit), .json or .txt (repeatable)"},
		&cli.BoolFlag{Name: "tensors-only", Category: category, Usage: "check --gate default without running the model"},
		&cli.StringFlag{Name: "against", Category: category, Usage: "earlier report (.json) `FILE` that a gate's \"worse\" compares with"},
		&cli.StringFlag{Name: "convention", Category: advanced, DefaultText: "by the text", Usage: "`NAME`: windows, documents, llama.cpp or lm-eval"},
		&cli.IntFlag{Name: "window", Category: advanced, DefaultText: "512, or the model's context", Usage: "`N`: tokens of a window, BOS included"},
		&cli.IntFlag{Name: "stride", Category: advanced, DefaultText: "no overlap", Usage: "`N`: tokens between the starts of windows"},
		cmdline.Positive(&cli.IntFlag{Name: "min-tokens", Category: advanced, DefaultText: "1000, or the gate's", Usage: "`N`: scored tokens that a gate needs at least"}),
		&cli.IntFlag{Name: "max-tokens", Category: advanced, DefaultText: "all", Usage: "`N`: end after so many scored tokens"},
		cmdline.Positive(&cli.IntFlag{Name: "max-questions", Category: advanced, DefaultText: "all", Usage: "`N`: answer the first so many questions of each file"}),
		&cli.StringFlag{Name: "activations", Category: advanced, Value: "int8", Usage: "`DTYPE`: int8, as on the device, float32, for the weights' loss alone, or onnx, as in ONNX Runtime"},
	}
}

// Options reads the flags.
func Options(c *cli.Context) (o gq.MeasureOptions, err error) {
	o = gq.MeasureOptions{
		Gate: c.String("gate"), Against: c.String("against"), Reports: c.StringSlice("report"),
		Settings:     accuracy.Settings{TensorsOnly: c.Bool("tensors-only"), MinTokens: c.Int("min-tokens"), Threads: c.Int("threads"), Version: c.App.Version},
		MaxQuestions: c.Int("max-questions"), Progress: cmdline.Reporter(c),
		Windows: text.Options{
			Convention: text.Convention(c.String("convention")), Window: c.Int("window"), Stride: c.Int("stride"), MaxTokens: c.Int("max-tokens"),
		},
	}
	for _, flag := range []string{"text", "tokens"} {
		for _, s := range c.StringSlice(flag) {
			t := gq.TextFile{Tokens: flag == "tokens"}
			if t.Name, t.Path = named(s); t.Path == "" {
				return o, cmdline.Usagef("--%s %s: an empty name names no file", flag, s)
			}
			o.Texts = append(o.Texts, t)
		}
	}
	for _, s := range c.StringSlice("choices") {
		name, path := named(s)
		if path == "" {
			return o, cmdline.Usagef("--choices %s: an empty name names no file", s)
		}
		o.Choices = append(o.Choices, gq.ChoiceFile{Name: name, Path: path})
	}
	if s := c.String("activations"); s != "" {
		var ok bool
		if o.Activations, ok = forward.ParseActivations(s); !ok {
			return o, cmdline.Usagef("--activations %s: int8, float32 or onnx", s)
		}
		// The library reads int8 as the default.
		if g, err := accuracy.ReadGate(o.Gate); err == nil && c.IsSet("activations") && g.Activations != "" && g.Activations != s {
			return o, cmdline.Usagef("--activations %s: %s says activations: %s, leave out one of the two", s, o.Gate, g.Activations)
		}
	}
	if c.IsSet("gate") && o.Gate == "" {
		return o, cmdline.Usagef("--gate: an empty name names no file")
	}
	need, with := []string{"window", "stride", "convention", "max-tokens", "activations", "baseline"}, []string{"text", "tokens"}
	if o.Gate == accuracy.DefaultGateName && !o.TensorsOnly || len(o.Choices) > 0 || c.String("reference") != "" {
		need = need[:4] // the model runs, on a text that it writes, on the reference's or on questions
	}
	if err := cmp.Or(cmdline.Needs(c, need, with...), cmdline.Needs(c, []string{"max-questions"}, "choices")); err != nil {
		return o, err
	}
	// The library reads 0 as the default.
	for name, to := range map[string]*int{"window": &o.Windows.Window, "stride": &o.Windows.Stride} {
		if c.IsSet(name) && *to == 0 {
			*to = -1
		}
	}
	return o, nil
}

// isName matches the names that NAME=FILE gives: a path with "=" and a slash before it is no name.
var isName = regexp.MustCompile(`^[A-Za-z0-9._+-]+$`)

// named splits NAME=FILE. The name is "" if there is none.
func named(s string) (name, path string) {
	if name, path, ok := strings.Cut(s, "="); ok && isName.MatchString(name) {
		return name, path
	}
	return "", s
}

// Warn prints warnings about the report on standard error.
func Warn(c *cli.Context, r *accuracy.Report) {
	if r == nil {
		return
	}
	warn := func(of, warning string) {
		if warning != "" {
			fmt.Fprintf(c.App.ErrWriter, "gq: warning: %s: %s\n", cmdline.Text(of), warning)
		}
	}
	for _, note := range r.Notes {
		warn(r.File, cmdline.Text(note))
	}
	warn("the model was not run", r.NoModel)
	for i := range r.Choices {
		warn(r.Choices[i].Name, r.Choices[i].Warning())
	}
	for _, t := range r.Scored() {
		warn(t.Text.Name, t.Text.Warning)
	}
}
