package gq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/lora"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/lm/choice"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/measure"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/report"
	"github.com/lowbit-go/gq/internal/suggest"
)

// MeasureOptions are the options of Measure. The zero value compares tensors only.
type MeasureOptions struct {
	// Settings are as in a job of package accuracy. Quantize always sets Parity.
	accuracy.Settings
	// Texts are files to run the models on, each with figures of its own. Default: no model is run,
	// unless Gate is the default gate, for which the float model writes a text.
	Texts []TextFile
	// Choices are files of multiple-choice questions that the models answer, see choice.Read. Default:
	// none.
	Choices []ChoiceFile
	// MaxQuestions is how many questions of each file are answered. Default (0): all.
	MaxQuestions int
	// Reference is a file of SaveReference: the float model's predictions of a text, so that the float
	// model does not run. Texts may name that text, to check that it is the same. Or Reference is a
	// directory, which keeps the predictions by the content of checkpoint and text: the float model
	// runs only on texts whose predictions are not there yet. Default (""): none.
	Reference string
	// Windows says how to cut the texts; see text.Options for its defaults.
	Windows text.Options
	// Lora names adapters that are merged into the checkpoint, as in quantizer.Recipe. They have to be
	// the adapters of the file. Default: none.
	Lora []string
	// Baseline is another .gqf or GGUF file to run on the same texts. Default (""): none.
	Baseline string
	// Tensors is a pattern for the names of the tensors to compare. It is refused with Gate.
	// Default (""): all.
	Tensors string
	// Gate is a file of conditions, or accuracy.DefaultGateName. Default (""): none.
	Gate string
	// Against is an earlier report, as JSON, that a gate may compare with. Default (""): none.
	Against string
	// Reports are files for the report, whose names end in .html, .md, .xml (JUnit), .json or .txt.
	// Default: none.
	Reports []string
	// Progress is told how far the job is. Default (nil): none. Quantize uses its own.
	Progress Progress
}

// TextFile is a file of plain text, or of token ids.
type TextFile struct {
	Path string
	// Name is the text's name in the report and in gates. Default (""): Path in the report; its last
	// element in gates.
	Name string
	// Tokens says that the file has token ids: decimal numbers separated by white space or commas.
	// Default: false, plain text.
	Tokens bool
}

// ChoiceFile is a file of multiple-choice questions.
type ChoiceFile struct {
	Path string
	// Name is the file's name in the report and in gates, as in TextFile.
	Name string
}

// Measure compares file with the checkpoint src that it was made from, and writes o.Reports. With
// o.Reference, src may be "": then no tensors are compared, no questions are answered, and neither
// the default gate nor a gate that limits figures of tensors can be checked. file is a .gqf file,
// or a GGUF file whoever made it: its tokenizer and its list of tensors are compared with the
// checkpoint's too. The report has the result of the gate; Verdict turns it into an error.
func Measure(ctx context.Context, src, file string, o MeasureOptions) (*accuracy.Report, error) {
	if remote.IsRemote(src) || remote.IsRemote(file) || remote.IsRemote(o.Baseline) {
		if _, err := o.job(ctx); err != nil { // mistakes are found before a download
			return nil, err
		}
	}
	names, release, err := resolveAll(ctx, stages{to: o.Progress}, &src, &file, &o.Baseline)
	if err != nil {
		return nil, err
	}
	defer release()
	var set files.Set
	if src != "" || o.Reference == "" {
		if err := checkOrder(src, file); err != nil {
			return nil, err
		}
		if err := floatReference(src); err != nil {
			return nil, err
		}
		set.Input("the checkpoint", checkpointFiles(src)...)
	} else if o.Gate == accuracy.DefaultGateName {
		return nil, optionf("", "the default gate limits figures of tensors, which are compared with the checkpoint: name the checkpoint too, or write a gate of the model's figures")
	}
	set.Input("the file", file)
	for _, name := range o.Lora {
		set.Input("the adapter", lora.Files(name)...)
	}
	o.addPaths(&set)
	if err := collisions(&set); err != nil {
		return nil, err
	}
	if len(o.Lora) > 0 && src == "" {
		return nil, optionf("lora", "goes with a checkpoint: name the checkpoint too")
	}
	var r *accuracy.Report
	err = withAdapters(ctx, src, o.Lora, o.Threads, stages{to: o.Progress}, func(src string, merged *provenance.Provenance) (err error) {
		r, err = o.measure(ctx, src, file, names, merged)
		return err
	})
	return r, err
}

// measure compares file with the checkpoint src, which has adapters merged. names are the names of
// the checkpoint, the file and the baseline for the report.
func (o *MeasureOptions) measure(ctx context.Context, src, file string, names []string, merged *provenance.Provenance) (*accuracy.Report, error) {
	j, err := o.job(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := o.references(src, j)
	if err != nil {
		return nil, err
	}
	if o.Reference != "" && kept == nil {
		f, saved, err := openReference(o.Reference)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		j.Saved = saved
	}
	if err := j.CheckNames(); err != nil {
		return nil, &OptionError{Err: err}
	}
	j.Source, j.SourceName, j.Name, j.BaselineName, j.Parity = src, names[0], names[1], names[2], o.Parity
	s := stages{to: o.Progress, plan: accuracyStages(j, 1)}
	var r *accuracy.Report
	err = withModel(ctx, file, o.Threads, s, func(m readable) error {
		if err := m.quantized(file); err != nil {
			return err
		}
		j.File, j.View, j.Imported = m.path, m.view, m.imported
		if src != "" {
			if err := checkAdapters(names[1], m, src, merged); err != nil {
				return err
			}
		}
		return withModel(ctx, o.Baseline, o.Threads, s, func(m readable) (err error) {
			if j.Baseline, j.BaselineView = m.path, m.view; m.imported != nil {
				j.BaselineBytes = m.imported.Bytes
			}
			if kept != nil {
				done, err := kept.openFor(ctx, j, stages{to: o.Progress})
				if err != nil {
					return err
				}
				defer done()
			}
			r, err = o.run(ctx, j, s)
			return err
		})
	})
	return r, err
}

// Verdict returns nil if there was no gate or the gate is met, else a *GateNotMetError. It also
// returns an error if a kernel differs from the portable reference.
func Verdict(r *accuracy.Report) error {
	if r.Gate != nil && !r.Gate.Passed {
		return &GateNotMetError{Gate: r.Gate.Gate, Failures: r.Gate.Failures, Try: r.Gate.Try}
	}
	return different(r)
}

// different returns an error if a kernel differs from the portable reference.
func different(r *accuracy.Report) error {
	for _, p := range r.Parity {
		if !p.Equal {
			return fmt.Errorf("kernel %s gives other bits than the portable reference for tensor %q: %s", p.Kernel, p.Tensor, p.FirstDifference)
		}
	}
	return nil
}

// job reads the files that the options name. The caller sets what to measure.
func (o *MeasureOptions) job(ctx context.Context) (*measure.Job, error) {
	j := &measure.Job{Settings: o.Settings}
	switch {
	case o.MinTokens < 0:
		return nil, optionf("min-tokens", "%d: at least 1", o.MinTokens)
	case o.MinTokens > 0 && o.Gate == "":
		return nil, optionf("min-tokens", "goes with a gate")
	case o.TensorsOnly && (len(o.Texts) > 0 || o.Reference != ""):
		return nil, optionf("tensors-only", "beside a text: no model would be run on it")
	case o.TensorsOnly && len(o.Choices) > 0:
		return nil, optionf("tensors-only", "beside questions: no model would answer them")
	case o.MaxQuestions < 0:
		return nil, optionf("max-questions", "%d: at least 1", o.MaxQuestions)
	case o.ActivationShare && o.Activations != forward.Int8:
		return nil, optionf("activation-share", "goes with int8 activations, not with %s", o.Activations)
	case o.ActivationShare && len(o.Texts) == 0 && o.Reference == "" && (o.Gate != accuracy.DefaultGateName || o.TensorsOnly):
		return nil, optionf("activation-share", "goes with a text")
	case o.Tensors != "" && o.Gate != "":
		return nil, optionf("tensors", "%q beside a gate: a gate covers the whole file, leave out one of the two", o.Tensors)
	case o.TensorsOnly && o.Gate == "":
		return nil, optionf("tensors-only", "goes with a gate")
	}
	if o.Tensors != "" {
		p, err := pattern.Parse(o.Tensors)
		if err != nil {
			return nil, optionf("tensors", "%q: %v", o.Tensors, err)
		}
		j.Match = p.Match
	}
	if err := checkReports(o.Reports, report.Extensions(), ""); err != nil {
		return nil, err
	}
	if err := o.readGate(j); err != nil {
		return nil, err
	}
	if err := o.readTexts(ctx, j); err != nil {
		return nil, err
	}
	return j, o.readChoices(ctx, j)
}

func (o *MeasureOptions) readTexts(ctx context.Context, j *measure.Job) error {
	if len(o.Texts) == 0 {
		return nil
	}
	if err := o.Windows.Check(); err != nil {
		return &OptionError{Err: err}
	}
	for _, t := range o.Texts {
		data, err := files.ReadContext(ctx, t.Path, files.MaxText)
		if err != nil {
			return err
		}
		j.Texts = append(j.Texts, &measure.TextSource{Name: cmp.Or(t.Name, t.Path), Data: data, Tokens: t.Tokens, Options: o.Windows})
	}
	return nil
}

func (o *MeasureOptions) readChoices(ctx context.Context, j *measure.Job) error {
	for _, c := range o.Choices {
		data, err := files.ReadContext(ctx, c.Path, files.MaxText)
		if err != nil {
			return err
		}
		questions, form, err := choice.Read(data, o.MaxQuestions)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
		j.Choices = append(j.Choices, &measure.ChoiceSource{Name: cmp.Or(c.Name, c.Path), Data: data, Questions: questions, Form: form})
	}
	return nil
}

func (o *MeasureOptions) readGate(j *measure.Job) (err error) {
	switch o.Gate {
	case "":
	case accuracy.DefaultGateName:
		j.DefaultGate = true
	default:
		j.Gate, err = accuracy.ReadGate(o.Gate)
		if errors.Is(err, fs.ErrNotExist) {
			beside, _ := filepath.Glob(filepath.Join(filepath.Dir(o.Gate), "*.y*ml"))
			err = fmt.Errorf("%w%s", err, suggest.DidYouMean(o.Gate, append(beside, accuracy.DefaultGateName)))
		}
		if err != nil {
			return err
		}
	}
	if o.Against != "" {
		if o.Gate == "" {
			return optionf("against", "goes with a gate that says by how much a figure may be worse")
		}
		j.Earlier, err = accuracy.ReadReport(o.Against)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: make the first report with gq accuracy SRC FILE --report %s", err, o.Against)
		}
		if err != nil {
			return err
		}
	}
	if g := j.Gate; g != nil {
		o.Windows.Window, o.Windows.Convention = cmp.Or(o.Windows.Window, g.Window), cmp.Or(o.Windows.Convention, g.Convention)
		if a, ok := forward.ParseActivations(g.Activations); ok && o.Activations == forward.Int8 {
			o.Activations, j.Activations = a, a
		}
		switch {
		case j.Earlier == nil && g.NeedsEarlier():
			return optionf("", "%s compares with an earlier report: name one", g.Name)
		case o.TensorsOnly && g.NeedsModel():
			return optionf("tensors-only", "%s limits figures of the model", g.Name)
		case len(o.Texts) == 0 && o.Reference == "" && g.NeedsModel():
			return optionf("", "%s limits figures of the model, which takes a text: name one", g.Name)
		case o.NoOutputs && g.NeedsOutputs():
			return optionf("", "%s limits outputs, which are left out", g.Name)
		}
	}
	return nil
}

// checkReports finds out before any work whether reports can be written. The job makes the
// directory made.
func checkReports(names, extensions []string, made string) error {
	for _, name := range names {
		if !slices.Contains(extensions, filepath.Ext(name)) {
			return optionf("report", "%s: the name has to end in %s", name, strings.Join(extensions, ", "))
		}
		fi, err := os.Stat(filepath.Dir(name))
		switch {
		case made != "" && filepath.Dir(name) == filepath.Clean(made):
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s: the directory %s does not exist", name, filepath.Dir(name))
		case err == nil && !fi.IsDir():
			return fmt.Errorf("%s: %s is not a directory", name, filepath.Dir(name))
		}
	}
	return nil
}

// run makes the report and writes it to the files of o.Reports.
func (o *MeasureOptions) run(ctx context.Context, j *measure.Job, s stages) (*accuracy.Report, error) {
	if j.NeedsModel() {
		defer memlimit.Lift()()
	}
	j.Stage = s.begin
	r, err := j.Run(ctx)
	if e, ok := errors.AsType[*measure.NoTensorError](err); ok {
		return nil, optionf("tensors", "%q: %w%s", o.Tensors, err, pattern.NoMatch(o.Tensors, e.Names))
	}
	if err != nil {
		return nil, err
	}
	for _, name := range o.Reports {
		if err := writeReport(ctx, name, func(w *io.OffsetWriter) error { return report.Write(w, filepath.Ext(name), r) }); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// writeReport writes a report or reference logits. The file at the path is replaced when the new
// one is complete.
func writeReport(ctx context.Context, name string, write func(w *io.OffsetWriter) error) error {
	f, err := atomicfile.Create(name)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := write(io.NewOffsetWriter(f, 0)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.Commit()
}
