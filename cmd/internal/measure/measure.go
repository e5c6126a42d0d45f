// Package measure reads the flags of a measurement, for `gq accuracy` and `gq quantize --gate`.
package measure

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
)

// TextFlags are the flags about the text, and about the outputs and checks of a measurement. The
// common ones are in the given category of help, the others in cmdline.Advanced.
func TextFlags(category string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "gate", Category: category, Usage: "`FILE` of conditions (YAML), or default; exit status 3 if one is not met"},
		&cli.StringSliceFlag{Name: "text", Category: category, Usage: "plain-text `FILE` to run the models on, or NAME=FILE (repeatable)"},
		&cli.StringSliceFlag{Name: "tokens", Category: category, Usage: "`FILE` of token ids instead: decimal numbers parted by white space or commas (repeatable)"},
		&cli.StringSliceFlag{Name: "choices", Category: category, Usage: "`FILE` of multiple-choice questions (JSON lines, or HellaSwag, ARC or MMLU), or NAME=FILE (repeatable)"},
		&cli.StringSliceFlag{Name: "report", Category: category, Usage: "`FILE` for a report: .html, .md, .xml (JUnit), .json or .txt (repeatable)"},
		&cli.BoolFlag{Name: "tensors-only", Category: category, Usage: "hold the file to a gate without running the model; --gate default has the model write a text otherwise"},
		&cli.StringFlag{Name: "against", Category: category, Usage: "`FILE`: an earlier report (.json) that a gate's \"worse\" compares with"},
		&cli.StringFlag{Name: "convention", Category: cmdline.Advanced, DefaultText: "documents if the text holds <|endoftext|>, else windows", Usage: "`NAME`: windows; documents, which <|endoftext|> separates; llama.cpp, which scores the second half of each window; or lm-eval, the task wikitext of lm-evaluation-harness"},
		&cli.IntFlag{Name: "window", Category: cmdline.Advanced, DefaultText: "512, or the model's context if that is less or with lm-eval", Usage: "`N`: tokens of a window, BOS included"},
		&cli.IntFlag{Name: "stride", Category: cmdline.Advanced, DefaultText: "no overlap", Usage: "`N`: tokens between the starts of windows; tokens that an earlier window scored are context only"},
		&cli.IntFlag{Name: "min-tokens", Category: cmdline.Advanced, DefaultText: "1000, or what the gate states", Usage: "`N`: scored tokens that a gate needs at least"},
		&cli.IntFlag{Name: "max-tokens", Category: cmdline.Advanced, DefaultText: "all", Usage: "`N`: end after so many scored tokens"},
		&cli.IntFlag{Name: "max-questions", Category: cmdline.Advanced, DefaultText: "all", Usage: "`N`: answer the first so many questions of each file"},
		&cli.StringFlag{Name: "activations", Category: cmdline.Advanced, Value: "int8", Usage: "`DTYPE` of the quantized model's activations: int8, as on the device, or float32, to see what the weights alone cost"},
	}
}

// Options reads the flags.
func Options(c *cli.Context) (o gq.MeasureOptions, err error) {
	o = gq.MeasureOptions{
		Gate: c.String("gate"), Against: c.String("against"), Reports: c.StringSlice("report"),
		TensorsOnly: c.Bool("tensors-only"), MaxQuestions: c.Int("max-questions"), MinTokens: c.Int("min-tokens"), Threads: c.Int("threads"), Version: c.App.Version, Progress: cmdline.Reporter(c),
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
	var ok bool
	if o.Activations, ok = model.ParseActivations(c.String("activations")); !ok {
		return o, cmdline.Usagef("--activations %s: int8 or float32", c.String("activations"))
	}
	switch {
	case c.IsSet("gate") && o.Gate == "":
		return o, cmdline.Usagef("--gate: an empty name names no file")
	case c.IsSet("min-tokens") && o.MinTokens < 1:
		return o, cmdline.Usagef("--min-tokens %d: at least 1", o.MinTokens)
	}
	switch {
	case c.IsSet("max-questions") && len(o.Choices) == 0:
		return o, cmdline.Usagef("--max-questions goes with --choices")
	case c.IsSet("max-questions") && o.MaxQuestions < 1:
		return o, cmdline.Usagef("--max-questions %d: at least 1", o.MaxQuestions)
	}
	if len(o.Texts) == 0 {
		need := []string{"window", "stride", "convention", "max-tokens", "activations", "baseline"}
		if o.Gate == accuracy.DefaultGateName && !o.TensorsOnly || len(o.Choices) > 0 || c.String("reference") != "" {
			need = need[:4] // the model runs, on a text that it writes, on the reference's or on questions
		}
		for _, f := range need {
			if c.IsSet(f) {
				return o, cmdline.Usagef("--%s goes with --text or --tokens", f)
			}
		}
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
	for _, note := range r.Notes {
		fmt.Fprintf(c.App.ErrWriter, "gq: warning: %s: %s\n", cmdline.Text(r.File), cmdline.Text(note))
	}
	if r.NoModel != "" {
		fmt.Fprintf(c.App.ErrWriter, "gq: warning: the model was not run: %s\n", r.NoModel)
	}
	for i := range r.Choices {
		if w := r.Choices[i].Warning(); w != "" {
			fmt.Fprintf(c.App.ErrWriter, "gq: warning: %s: %s\n", cmdline.Text(r.Choices[i].Name), w)
		}
	}
	for _, t := range r.Scored() {
		if t.Text.Warning != "" {
			fmt.Fprintf(c.App.ErrWriter, "gq: warning: %s: %s\n", cmdline.Text(t.Text.Name), t.Text.Warning)
		}
	}
}
