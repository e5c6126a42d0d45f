package measure

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/logits"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// Job describes a run of `gq accuracy`, which makes a Report. Source and File must be set.
type Job struct {
	accuracy.Settings
	// Source is the checkpoint: a directory, or a .safetensors file, which has no model to run.
	// Default, if all texts have saved predictions: no tensors are compared.
	Source string
	// SourceName is the checkpoint's name in the report. Default: Source.
	SourceName string
	// Folded is the directory of the folded checkpoint that File was quantized from. Default: if File
	// was folded, Source is folded again in a temporary directory.
	Folded string
	// File is the .gqf. Name is its name in the report. Default: File.
	File, Name string
	// View is a view of the GGUF file File. Default (nil): File is a .gqf file.
	View *gqf.File
	// Imported describes the tensors of View, or of the quantized checkpoint, called Name, that was
	// converted to File for the measurement. Default (nil): File was not converted.
	Imported *Imported
	// Baseline is another file to run on the same texts, BaselineView as View. BaselineName and
	// BaselineBytes are its name and size in the report, if Baseline is not a .gqf file. Default:
	// none; Baseline, its size.
	Baseline, BaselineName string
	BaselineBytes          int64
	BaselineView           *gqf.File
	// Match selects the tensors to compare, by any of their names. A gate refuses Match. Default: all.
	Match func(name string) bool
	// Texts are the texts to run the models on. Default: none, or with DefaultGate a text that the
	// float model writes.
	Texts []*TextSource
	// Choices are files of multiple-choice questions that the models answer. Default: none.
	Choices []*ChoiceSource
	// Saved has the float model's predictions of the text, so that the float model does not run. Texts
	// may have a single text, the same text. Default: none, unless a text has its own.
	Saved *Saved
	// Gate is checked at the end; DefaultGate checks the default gate instead. Default: none.
	Gate        *accuracy.Gate
	DefaultGate bool
	// Earlier is the earlier report that a gate may compare with.
	Earlier *accuracy.Report
	// Worst is the number of worst tokens in the report. Default: 10; -1 for none.
	Worst int
	// Stage is called when a longer part of the work begins. It returns add, which several
	// goroutines call with the progress, and end, which is called at the end of the part. Default:
	// none.
	Stage func(name, unit string, total int64) (add func(n int64), end func())
}

// Run makes the report with the gate's result. The error is a *GateError if the gate does not fit.
func (j *Job) Run(ctx context.Context) (*accuracy.Report, error) {
	if j.Match != nil && (j.Gate != nil || j.DefaultGate) {
		return nil, errors.New("a gate covers the whole file: Match is set beside it")
	}
	r := &accuracy.Report{
		Schema: accuracy.ReportSchema, File: cmp.Or(j.Name, j.File), Source: cmp.Or(j.SourceName, j.Source), Activations: j.Activations.String(),
		Run: &accuracy.Run{Version: j.Version, CPU: kernels.Features(), Threads: cpu.Threads(j.Threads), Seconds: map[string]float64{}},
	}
	var ck *safetensors.Checkpoint
	var err error
	if j.Source != "" || !j.allSaved() {
		if ck, err = safetensors.Open(j.Source, safetensors.Options{}); err != nil {
			return nil, err
		}
		defer ck.Close()
	} else if r.Source == "" {
		r.Source = j.savedOf(0).Model
	}
	f, err := open(j.File, j.View)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	f.CheckSums() // before the model is opened, to run on checked data
	r.FileBytes, r.Quality = f.Size(), qualityOf(f)
	if j.Imported != nil {
		r.FileBytes = j.Imported.Bytes
		if ck != nil {
			if r.Notes, err = missingTensors(ck, f); err != nil {
				return nil, err
			}
		}
	}
	j.compareTokenizers(f, r)
	if err := cmp.Or(j.checkSaved(f, r), j.matchesAny(f), j.preflight(f), j.CheckNames()); err != nil {
		return nil, err
	}
	var text *scored
	if j.NeedsModel() {
		if text, err = j.open(ctx, f, r); err != nil {
			return nil, err
		}
		defer text.close()
		if j.Gate != nil {
			if err := j.Gate.Comparable(r, j.Earlier); err != nil {
				return nil, err
			}
		}
	}
	if ck != nil {
		folded, err := j.folded(ctx, ck, f, r)
		if err == nil {
			err = j.tensors(ctx, ck, folded, f, text, r)
			folded.close()
		}
		if err != nil {
			return nil, err
		}
	}
	if j.Parity {
		_, end := j.stage(r, "parity", "checking kernels", "", 0)
		r.Parity, err = CheckParity(ctx, f, ParityOptions{Threads: j.Threads, Match: j.Match})
		if end(); err != nil {
			return nil, err
		}
	}
	if text != nil && r.NoModel == "" {
		text.executed(r)
		if err := j.compare(ctx, text, r); err != nil {
			return nil, err
		}
		if err := j.answer(ctx, text, r); err != nil {
			return nil, err
		}
	}
	gate := j.Gate
	if j.DefaultGate {
		gate = accuracy.DefaultGate(r)
	}
	if gate != nil {
		g := *gate
		g.MinTokens = cmp.Or(j.MinTokens, g.MinTokens)
		if _, err := g.Check(r, j.Earlier); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// NeedsModel reports whether the models are run: on Texts, the text of Saved or Choices, or for
// DefaultGate on a text that the float model writes.
func (j *Job) NeedsModel() bool { return j.HasText() || len(j.Choices) > 0 || j.WritesText() }

// HasText reports whether there is a text, or saved predictions of a text.
func (j *Job) HasText() bool { return len(j.Texts) > 0 || j.Saved != nil }

// gated reports whether a gate is checked. The gate says why a text or questions are not enough.
func (j *Job) gated() bool { return j.Gate != nil || j.DefaultGate }

// sampledInputs reports whether layers are executed on activations of the float model.
func (j *Job) sampledInputs() bool { return !j.NoOutputs && !j.RandomInputs }

// WritesText reports whether the float model writes the text.
func (j *Job) WritesText() bool { return !j.HasText() && j.DefaultGate && !j.TensorsOnly }

func (j *Job) stage(r *accuracy.Report, key, name, unit string, total int64) (add func(n int64), end func()) {
	start := time.Now()
	done := func() {}
	add = func(int64) {}
	if j.Stage != nil {
		add, done = j.Stage(name, unit, total)
	}
	return add, func() {
		done()
		r.Run.Seconds[key] = time.Since(start).Seconds()
	}
}

// NoTensorError says that Job.Match matches no tensor of the file.
type NoTensorError struct {
	File  string
	Names []string // of the file's tensors
}

func (e *NoTensorError) Error() string { return e.File + ": no tensor has a name that was asked for" }

func (j *Job) matchesAny(f *gqf.File) error {
	for i := range f.Len() {
		if matches(f.Tensor(i), j.Match) {
			return nil
		}
	}
	if f.Len() > 0 {
		return &NoTensorError{j.Name, tensorNames(f)}
	}
	return nil
}

func tensorNames(f *gqf.File) (names []string) {
	for n := range f.AllNames() {
		names = append(names, n.Name)
	}
	return names
}

// preflight finds mistakes in the gate before any work.
func (j *Job) preflight(f *gqf.File) error {
	g := j.Gate
	if g == nil {
		return nil
	}
	if j.Source == "" && (len(g.Tensors) > 0 || g.Unquantized) {
		return &accuracy.GateError{File: g.Name, Msg: "limits figures of tensors, which are compared with the checkpoint: name the checkpoint too"}
	}
	for i, rule := range g.Tensors {
		if rule.Bits != 0 || rule.Group != nil || rule.Match == "" {
			continue
		}
		found := false
		for t := range f.Len() {
			found = found || mayMatch(rule, f.Tensor(t))
		}
		if !found {
			return &accuracy.GateError{File: g.Name, Key: fmt.Sprintf("tensors[%d].match", i), Msg: fmt.Sprintf("no quantized tensor matches %q%s", rule.Match, pattern.NoMatch(rule.Match, tensorNames(f)))}
		}
	}
	return nil
}

func mayMatch(r accuracy.TensorRule, t gqf.Tensor) bool {
	p, ok := t.Payload(0, 0, gqf.KindWeights)
	if !ok || p.Header.Layout == packing.LayoutPlain {
		return false
	}
	for _, name := range t.Names() {
		for slice := range t.Experts {
			if pattern.MatchAny(r.Match, name, label(name, slice, t.Experts)) {
				return true
			}
		}
	}
	return false
}

// tensors compares the file's tensors with the checkpoint, or with the folded checkpoint, if any.
func (j *Job) tensors(ctx context.Context, ck *safetensors.Checkpoint, folded *foldedSource, f *gqf.File, text *scored, r *accuracy.Report) error {
	o := TensorOptions{Threads: j.Threads, Match: j.Match, NoOutputs: j.NoOutputs}
	if text != nil && len(text.texts) > 0 && j.sampledInputs() && (text.float != nil || folded != nil) {
		start := time.Now()
		float := text.float
		if folded != nil {
			m, err := forward.OpenCheckpoint(folded.ck.Dir(), forward.Options{Threads: cpu.Threads(j.Threads)})
			if err != nil {
				return err
			}
			defer m.Close()
			float = m
		}
		var err error
		if o.Inputs, err = calibrate(ctx, float, text.texts[0].windows); err != nil {
			return err
		}
		r.Run.Seconds["calibration"] = time.Since(start).Seconds()
	}
	total := int64(0)
	for i := range f.Len() {
		if t := f.Tensor(i); matches(t, j.Match) {
			for _, p := range t.Payloads() {
				if p.Kind == gqf.KindWeights {
					total += int64(p.Header.Rows * p.Header.Cols)
				}
			}
		}
	}
	add, end := j.stage(r, "tensors", "comparing tensors", "weights", total)
	defer end()
	o.Progress = add
	if folded != nil {
		ck = folded.ck
	}
	stats, err := Tensors(ctx, ck, f, o)
	if err != nil {
		return err
	}
	fitted := fitsOf(f)
	for i := range stats {
		if j.Imported != nil {
			j.Imported.describe(&stats[i], fitted)
		}
		if s := &stats[i]; s.NotFinite != "" {
			r.Notes = append(r.Notes, fmt.Sprintf("unquantized tensor %q: %s", s.Label(), s.NotFinite))
		}
	}
	r.Tensors = stats
	r.Totals.SumUp(stats)
	r.Run.Kernels = kernelsOf(f)
	return nil
}

// kernelsOf lists the kernels that this machine uses for many rows of activations.
func kernelsOf(f *gqf.File) []string {
	var names []string
	for i := range f.NumPayloads() {
		p := f.Payload(i)
		if p.Variant < 0 || p.Kind != gqf.KindWeights || p.Header.Layout == packing.LayoutPlain {
			continue
		}
		if name, err := kernels.KernelFor(p.Header, 64, kernels.Options{}); err == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (j *Job) compare(ctx context.Context, s *scored, r *accuracy.Report) error {
	if len(s.texts) == 0 {
		return nil
	}
	total, tokens := 0, 0
	for i := range s.texts {
		total += text.CountScored(s.texts[i].windows)
		for _, w := range s.texts[i].windows {
			tokens += len(w.Tokens) // context included
		}
	}
	add, end := j.stage(r, "text", "scoring", "tokens", int64(total))
	defer end()
	start := time.Now()
	for i, to := range r.Scored() {
		float, saved := s.float, (*logits.File)(nil)
		if p := j.savedOf(i); p != nil {
			float, saved = nil, p.File
		}
		candidates := s.candidates()
		if s.weights != nil {
			candidates = append(candidates, s.weights) // the last candidate
		}
		list, err := eval.Compare(ctx, float, candidates, s.texts[i].windows, eval.CompareOptions{
			Saved: saved, Sizes: s.texts[i].sizes, Worst: j.Worst, Sessions: min(cpu.Threads(j.Threads), maxSessions),
			Progress: func(n int) { add(int64(n)) },
		})
		if err != nil {
			return j.named(err, r)
		}
		if s.weights != nil {
			last := len(list) - 1
			to.ActivationError, list = activationError(&list[0], &list[last]), list[:last]
		}
		for k := range list {
			s.texts[i].spell(s.tokenizer, list[k].Worst)
		}
		to.Model = &list[0]
		to.Text.Content, to.Text.Vocabulary = text.ContentOf(s.texts[i].windows), s.quantized.VocabSize()
		if why := to.NoContent(); why != "" && !j.gated() {
			to.Text.Warning = strings.TrimPrefix(to.Text.Warning+"; "+why, "; ")
		}
		if s.baseline != nil {
			to.Baseline = &accuracy.Baseline{File: cmp.Or(j.BaselineName, j.Baseline), FileBytes: cmp.Or(j.BaselineBytes, s.baselineFile.Size()), Comparison: list[1]}
		}
	}
	r.Run.TokensPerSecond = float64(tokens) / time.Since(start).Seconds()
	return nil
}

// named names the file with logits that are not finite.
func (j *Job) named(err error, r *accuracy.Report) error {
	nf, ok := errors.AsType[*eval.NonFiniteError](err)
	switch {
	case !ok || nf.Model == 0:
		return err
	case nf.Model == 2 && j.Baseline != "":
		return fmt.Errorf("%s: %w", cmp.Or(j.BaselineName, j.Baseline), err)
	}
	return fmt.Errorf("%s: %w", r.File, err)
}

// maxSessions bounds the windows in work: each needs keys, values and logits of all models.
const maxSessions = 4

// open opens a .gqf file, or returns a view.
func open(path string, view *gqf.File) (*gqf.File, error) {
	if view != nil {
		return view, nil
	}
	return gqf.Open(path, gqf.Options{})
}

func hash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
