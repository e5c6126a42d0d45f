// Package measure is what `gq accuracy` and `gq quantize --gate` share: the flags that say what is measured, and how it is
// shown.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/accuracy/report"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
)

// TextFlags say on what text models are compared, and with what the result is.
func TextFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "text", Usage: "plain-text `FILE` to run the models on"},
		&cli.StringFlag{Name: "tokens", Usage: "`FILE` of token ids instead: decimal numbers parted by white space or commas"},
		&cli.IntFlag{Name: "window", DefaultText: "512, or the model's context if that is less", Usage: "tokens of a window, BOS included"},
		&cli.IntFlag{Name: "stride", DefaultText: "no overlap", Usage: "tokens between the starts of windows; those that were scored already are context only"},
		&cli.StringFlag{Name: "convention", DefaultText: "documents if the text holds <|endoftext|>, else windows", Usage: "windows; documents, which <|endoftext|> separates; or llama.cpp, which scores the second half of each window"},
		&cli.IntFlag{Name: "max-tokens", DefaultText: "all", Usage: "end behind so many scored tokens"},
		&cli.StringFlag{Name: "activations", Value: "int8", Usage: "of the quantized model: int8, as on the device, or float32, to see what the weights alone cost"},
		&cli.StringFlag{Name: "gate", Usage: "`FILE` of conditions (YAML), or default; exit status 3 if one is not met"},
		&cli.StringFlag{Name: "against", Usage: "earlier report (--json) that a gate's \"worse\" compares with"},
		&cli.StringSliceFlag{Name: "report", Usage: "`FILE` for a report: .html, .md, .xml (JUnit), .json or .txt (repeatable)"},
	}
}

// Job reads the flags. Source and File are the caller's to set.
func Job(c *cli.Context) (*accuracy.Job, error) {
	j := &accuracy.Job{Threads: c.Int("threads"), Version: c.App.Version}
	if j.Threads < 0 {
		return nil, cmdline.Usagef("--threads %d: at least 1", j.Threads)
	}
	var ok bool
	if j.Activations, ok = model.ParseActivations(c.String("activations")); !ok {
		return nil, cmdline.Usagef("--activations %s: int8 or float32", c.String("activations"))
	}
	if err := reportPaths(c); err != nil {
		return nil, err
	}
	if err := readText(c, j); err != nil {
		return nil, err
	}
	if err := gate(c, j); err != nil {
		return nil, err
	}
	quiet := c.Bool("quiet")
	j.Stage = func(name, unit string, total int64) (func(int64), func()) {
		bar := cmdline.NewCount(os.Stderr, total, name, unit, quiet)
		return bar.Add, bar.Finish
	}
	return j, nil
}

// readText reads the text and how it is cut.
func readText(c *cli.Context, j *accuracy.Job) error {
	name := c.String("text")
	if c.IsSet("text") && c.IsSet("tokens") {
		return cmdline.Usagef("--text and --tokens: give one of them")
	}
	if c.IsSet("tokens") {
		name = c.String("tokens")
	}
	if !c.IsSet("text") && !c.IsSet("tokens") {
		for _, f := range []string{"window", "stride", "convention", "max-tokens", "activations", "baseline"} {
			if c.IsSet(f) {
				return cmdline.Usagef("--%s goes with --text or --tokens: without, no model is run", f)
			}
		}
		return nil
	}
	o := text.Options{Convention: text.Convention(c.String("convention")), Window: c.Int("window"), Stride: c.Int("stride"), MaxTokens: c.Int("max-tokens")}
	if c.IsSet("stride") && o.Stride == 0 {
		o.Stride = -1 // 0 would be the default
	}
	if c.IsSet("window") && o.Window == 0 {
		o.Window = -1
	}
	if err := o.Check(); err != nil {
		return &cmdline.UsageError{Err: err}
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	j.Text = &accuracy.TextSource{Name: name, Data: data, Tokens: c.IsSet("tokens"), Options: o}
	return nil
}

// gate reads the gate and the earlier report.
func gate(c *cli.Context, j *accuracy.Job) (err error) {
	switch name := c.String("gate"); {
	case name == accuracy.DefaultGateName:
		j.DefaultGate = true
	case c.IsSet("gate"):
		if j.Gate, err = accuracy.ReadGate(name); err != nil {
			return usage(err)
		}
	}
	if c.IsSet("against") {
		if !c.IsSet("gate") {
			return cmdline.Usagef("--against goes with a --gate that says by how much a figure may be worse")
		}
		if j.Earlier, err = accuracy.ReadReport(c.String("against")); err != nil {
			return err
		}
	}
	if g := j.Gate; g != nil {
		switch {
		case j.Earlier == nil && g.NeedsEarlier():
			return cmdline.Usagef("%s compares with an earlier report: name it with --against", g.Name)
		case j.Text == nil && g.NeedsModel():
			return cmdline.Usagef("%s limits figures of the model, which takes a text: name one with --text", g.Name)
		case c.Bool("no-outputs") && g.NeedsOutputs():
			return cmdline.Usagef("%s limits outputs, which --no-outputs leaves out", g.Name)
		}
	}
	return nil
}

// usage makes an error of the gate one of usage.
func usage(err error) error {
	if _, ok := errors.AsType[*accuracy.GateError](err); ok {
		return &cmdline.UsageError{Err: err}
	}
	return err
}

// reportPaths finds before any work that reports cannot be written.
func reportPaths(c *cli.Context) error {
	for _, name := range c.StringSlice("report") {
		if !slices.Contains(report.Extensions(), filepath.Ext(name)) {
			return cmdline.Usagef("--report %s: the name has to end in %s", name, strings.Join(report.Extensions(), ", "))
		}
		fi, err := os.Stat(filepath.Dir(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s: the directory %s does not exist", name, filepath.Dir(name))
		case err == nil && !fi.IsDir():
			return fmt.Errorf("%s: %s is not a directory", name, filepath.Dir(name))
		}
	}
	return nil
}

// Match makes the filter of --tensors; nil without.
func Match(c *cli.Context) (func(string) bool, error) {
	pattern := c.String("tensors")
	if !c.IsSet("tensors") {
		return nil, nil
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, cmdline.Usagef("--tensors %q is not a pattern", pattern)
	}
	return func(name string) bool { return accuracy.MatchName(pattern, name) }, nil
}

// Run makes the report and writes the files that --report names; standard output is the caller's.
func Run(c *cli.Context, j *accuracy.Job) (*accuracy.Report, error) {
	// The limit that the pipelines keep would have the garbage collector work without an end beside logits and caches.
	if os.Getenv("GOMEMLIMIT") == "" {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	}
	r, err := j.Run(c.Context)
	if _, ok := errors.AsType[*accuracy.NoTensorError](err); ok {
		return nil, cmdline.Usagef("--tensors %q: %w", c.String("tensors"), err)
	}
	if err != nil {
		return nil, usage(err)
	}
	if r.NoModel != "" {
		fmt.Fprintf(c.App.ErrWriter, "gq: warning: the model was not run: %s\n", r.NoModel)
	}
	if r.Text != nil && r.Text.Warning != "" {
		fmt.Fprintf(c.App.ErrWriter, "gq: warning: %s: %s\n", cmdline.Text(r.Text.Name), r.Text.Warning)
	}
	for _, name := range c.StringSlice("report") {
		if err := write(c.Context, name, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// write writes a report; its path holds all of it or what was there before.
func write(ctx context.Context, name string, r *accuracy.Report) error {
	f, err := atomicfile.Create(name)
	if err != nil {
		return err
	}
	defer f.Abort()
	w := &offset{f: f}
	if err := report.Write(w, filepath.Ext(name), r); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.Commit()
}

// offset writes to a file from its start on.
type offset struct {
	f  *atomicfile.File
	at int64
}

func (o *offset) Write(p []byte) (int, error) {
	n, err := o.f.WriteAt(p, o.at)
	o.at += int64(n)
	return n, err
}

// GateError says that a gate is not met: exit status 3.
type GateError struct{ Msg string }

func (e *GateError) Error() string { return e.Msg }

// ExitCode makes a GateError a cli.ExitCoder.
func (e *GateError) ExitCode() int { return 3 }

// Verdict is nil if there was no gate or it is met, else a *GateError whose text ends in note. Kernels that give other
// bits than the portable reference are an error of their own.
func Verdict(r *accuracy.Report, note string) error {
	if r.Gate != nil && !r.Gate.Passed {
		more := ""
		if n := len(r.Gate.Failures); n > 1 {
			more = fmt.Sprintf(" (and %d more)", n-1)
		}
		return &GateError{fmt.Sprintf("gate %s is not met: %s%s%s", cmdline.Text(r.Gate.Gate), cmdline.Text(r.Gate.Failures[0].String()), more, note)}
	}
	for _, p := range r.Parity {
		if !p.Equal {
			return fmt.Errorf("kernel %s gives other bits than the portable reference for tensor %q: %s%s", p.Kernel, p.Tensor, p.FirstDifference, note)
		}
	}
	return nil
}
