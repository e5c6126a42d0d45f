package gq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/location"
	"github.com/lowbit-go/gq/internal/job/lora"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/measure"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/report"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/quantizer"
)

// SweepOptions are the options of Sweep. Measure.Texts, and Recipes or Files, must be set.
type SweepOptions struct {
	// Recipes are the recipes of the .gqf files to make. No two may have the same name or the same
	// content. All have the same adapters, which the float model has too.
	Recipes []SweepRecipe
	// Files are quantized models to compare with the recipes' files: .gqf files, GGUF files and
	// quantized checkpoints. Each sweep measures them. Default: none.
	Files []string
	// Output is a directory for the files, NAME.gqf by the recipes' names. Sweep makes the directory
	// if its parent exists. A later sweep takes files and figures from there. Default (""): files are
	// dropped when they are measured.
	Output string
	// Measure says how the files are measured, and the gate for each of them. Its Reports are reports
	// of the sweep, in .html, .csv, .json, .md or .txt. Its Threads and Progress are also for
	// quantizing. Tensors are compared only if the gate or Choices need that. Reference may be a
	// directory; by default the working directory keeps the float model's predictions until the sweep
	// is done. Baseline, Tensors, TensorsOnly, NoOutputs, RandomInputs, Parity, Against and Lora must
	// not be set.
	Measure MeasureOptions
}

// SweepRecipe is a recipe of a sweep.
type SweepRecipe struct {
	// Name is the recipe's name in the report and of its file: letters, digits, ".", "_", "+" and "-".
	Name   string
	Recipe quantizer.Recipe
	// File is the file that Recipe was read from. No output may replace it. Default (""): none.
	File string
}

// CrossRecipes combines widths, groups and algorithms: a recipe like base for each combination,
// called "4bit-g64-search". Empty lists leave the base's value, and its part of the names, out.
// Algorithms that need calibration use base.Calibrate, or else quantizer.Self.
func CrossRecipes(base quantizer.Recipe, bits, groups []int, algorithms []gqf.Algorithm) (list []SweepRecipe) {
	list = []SweepRecipe{{Recipe: base}}
	list = cross(list, bits, func(r *quantizer.Recipe, b int) string { r.Bits = b; return fmt.Sprintf("%dbit", b) })
	list = cross(list, groups, func(r *quantizer.Recipe, g int) string {
		if r.Group = &g; g == quantizer.PerChannel {
			return "channel"
		}
		return fmt.Sprintf("g%d", g)
	})
	list = cross(list, algorithms, func(r *quantizer.Recipe, a gqf.Algorithm) string { r.Algorithm = a; return a.String() })
	for i := range list {
		r := &list[i].Recipe
		switch {
		case !r.Algorithm.Calibrated():
			r.Calibrate, r.CalibrateTokens = "", 0
		case r.Calibrate == "":
			r.Calibrate = quantizer.Self
		}
	}
	return list
}

// cross sets each value in a copy of each recipe. set returns the value's part of the name.
func cross[T any](list []SweepRecipe, values []T, set func(r *quantizer.Recipe, v T) string) (crossed []SweepRecipe) {
	if len(values) == 0 {
		return list
	}
	for _, r := range list {
		for _, v := range values {
			next := r
			if part := set(&next.Recipe, v); next.Name == "" {
				next.Name = part
			} else {
				next.Name += "-" + part
			}
			crossed = append(crossed, next)
		}
	}
	return crossed
}

// Sweep makes a .gqf file of the checkpoint src with each recipe, and measures these files and
// o.Files on the same texts. What recipes have in common is made once: the float model's
// predictions, the texts that the model writes, importance matrices, and the codes of successive
// recipes that differ only in layouts. If the job leaves finished work, the error is a
// *ResumeError. The report has the results of the gate; SweepVerdict turns them into an error.
func Sweep(ctx context.Context, src string, o SweepOptions) (*accuracy.SweepReport, error) {
	s := &sweep{ctx: ctx, src: src, name: src, o: o, stages: stages{to: o.Measure.Progress}}
	s.reports, s.o.Measure.Reports = o.Measure.Reports, nil // of all files, not of each
	defer func() { s.from.Release() }()
	if err := s.check(); err != nil {
		return nil, err
	}
	if o.Output != "" {
		if err := os.Mkdir(o.Output, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	var err error
	if s.work, err = workdir.Open(s.workPath()); err != nil { // and locked
		return nil, err
	}
	var r *accuracy.SweepReport
	err = withAdapters(ctx, s.src, s.adapters(), o.Measure.Threads, s.stages, func(merged string, p *provenance.Provenance) (err error) {
		if s.float, s.merged = merged, p; s.job.Source != "" {
			s.job.Source = merged
		}
		r, err = s.run()
		return err
	})
	return r, s.cleanUp(err)
}

// adapters are the adapters of all recipes.
func (s *sweep) adapters() []string {
	if len(s.o.Recipes) == 0 {
		return nil
	}
	return s.o.Recipes[0].Recipe.Lora
}

// SweepVerdict returns a *GateNotMetError if there was a gate that some files do not meet.
func SweepVerdict(r *accuracy.SweepReport) error {
	e := &GateNotMetError{Of: len(r.Files)}
	for _, f := range r.Files {
		if g := f.Gate; g != nil && !g.Passed {
			if e.Unmet = append(e.Unmet, f.Name); len(e.Unmet) == 1 {
				e.Gate, e.Failures = g.Gate, g.Failures
			}
		}
	}
	if e.Unmet == nil {
		return nil
	}
	return e
}

type sweep struct {
	ctx  context.Context
	src  string // on this machine
	name string // as reports have it
	from *location.Source
	o    SweepOptions
	// float is the checkpoint to compare files with: src, or a copy with merged adapters.
	float  string
	merged *provenance.Provenance // of the copy, else nil
	stages
	reports []string     // files for the report
	job     *measure.Job // for all files
	keys    []string     // of the files, by recipe
	recipes []string     // as YAML
	bytes   int64        // of the checkpoint's tensors

	work       *workdir.Dir
	references func() // closes the float model's predictions; nil: they are not open yet
}

func (s *sweep) run() (*accuracy.SweepReport, error) {
	start := time.Now()
	r := &accuracy.SweepReport{
		Schema: accuracy.SweepSchema, Source: s.name, SourceBytes: s.bytes, Activations: s.o.Measure.Activations.String(),
		Run: &accuracy.Run{Version: s.o.Measure.Version, CPU: kernels.Features(), Threads: cpu.Threads(s.o.Measure.Threads), Seconds: map[string]float64{}},
	}
	defer func() {
		if s.references != nil {
			s.references()
		}
	}()
	for i := range s.o.Recipes {
		s.logf("recipe %d of %d: %s", i+1, len(s.o.Recipes), s.o.Recipes[i].Name)
		f, err := s.file(i)
		if err != nil {
			return nil, fmt.Errorf("recipe %s: %w", s.o.Recipes[i].Name, err)
		}
		r.Files = append(r.Files, f)
	}
	for i, name := range s.o.Files {
		s.logf("file %d of %d: %s", i+1, len(s.o.Files), name)
		f, err := s.given(name)
		if err != nil {
			return nil, err
		}
		r.Files = append(r.Files, f)
	}
	r.MarkPareto()
	r.Run.Seconds["sweep"] = time.Since(start).Seconds()
	for _, name := range s.reports {
		if err := writeReport(s.ctx, name, func(w *io.OffsetWriter) error { return report.WriteSweep(w, filepath.Ext(name), r) }); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// isSweepName matches names of recipes: they become names of files.
var isSweepName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)

func (s *sweep) check() (err error) {
	o := &s.o
	if err := s.checkRecipes(); err != nil {
		return err
	}
	if err := s.checkMeasure(); err != nil {
		return err
	}
	if err := checkReports(s.reports, report.SweepExtensions(), o.Output); err != nil {
		return err
	}
	if remote.IsRemote(s.src) { // mistakes are found before a download
		if _, err = o.Measure.job(s.ctx); err != nil {
			return err
		}
	}
	if s.from, err = resolveSource(s.ctx, s.src, true, s.stages); err != nil {
		return err
	}
	s.src, s.name = s.from.Path, s.from.Name
	if err := floatReference(s.src); err != nil {
		return err
	}
	if err := s.checkPaths(); err != nil {
		return err
	}
	if s.job, err = o.Measure.job(s.ctx); err != nil {
		return err
	}
	if err := s.job.CheckNames(); err != nil {
		return &OptionError{Err: err}
	}
	g := s.job.Gate
	s.job.SourceName, s.job.Parity, s.job.Worst = s.name, o.Measure.Gate != "", -1
	s.job.NoOutputs = g == nil || !g.NeedsOutputs()
	if len(s.job.Choices) > 0 || s.job.DefaultGate || g != nil && (len(g.Tensors) > 0 || g.Unquantized) {
		s.job.Source = s.src // tensors are compared
	}
	return s.plan()
}

// checkRecipes checks names, and that no two recipes are the same.
func (s *sweep) checkRecipes() error {
	list := s.o.Recipes
	if len(list) == 0 && len(s.o.Files) == 0 {
		return optionf("recipes", "names no recipe: name recipe files, state bits or algorithm, or name quantized files")
	}
	for i := range list {
		r := &list[i]
		if !isSweepName.MatchString(r.Name) {
			return optionf("recipes", "%q cannot be the name of a file: use letters, digits, \".\", \"_\", \"+\" and \"-\"", r.Name)
		}
		if !slices.Equal(r.Recipe.Lora, s.adapters()) {
			return optionf("recipes", "%s and %s differ in lora: a sweep compares all files with the same float model, so give both the same adapters in the same order", list[0].Name, r.Name)
		}
		r.Recipe = r.Recipe.WithQuality()
		text, err := r.Recipe.YAML("", nil)
		if err != nil {
			return err
		}
		s.recipes = append(s.recipes, string(text))
		for k := range i {
			switch {
			case strings.EqualFold(list[k].Name, r.Name):
				return optionf("recipes", "names two recipes %s: rename one, because their files would have the same name", r.Name)
			case s.recipes[k] == s.recipes[i]:
				return optionf("recipes", "%s and %s are the same recipe: leave one of them out", list[k].Name, r.Name)
			}
		}
	}
	return nil
}

// checkMeasure refuses options that a sweep sets itself or cannot use.
func (s *sweep) checkMeasure() error {
	m := &s.o.Measure
	if len(m.Texts) == 0 {
		return optionf("text", "is missing: files are compared by their predictions of a text")
	}
	for _, option := range []struct {
		name string
		set  bool
	}{
		{"baseline", m.Baseline != ""}, {"tensors", m.Tensors != ""}, {"tensors-only", m.TensorsOnly}, {"no-outputs", m.NoOutputs},
		{"calibration", m.RandomInputs}, {"parity", m.Parity}, {"against", m.Against != ""},
	} {
		if option.set {
			return optionf(option.name, "does not go with a sweep: measure single files with gq accuracy")
		}
	}
	if len(m.Lora) > 0 {
		return optionf("lora", "of a sweep is a setting of its recipes")
	}
	if m.Reference != "" && !isDirectory(m.Reference) {
		return optionf("reference", "%s is not a directory: a sweep keeps the float model's predictions in one", m.Reference)
	}
	return nil
}

func (s *sweep) workPath() string {
	if s.o.Output != "" {
		return filepath.Join(s.o.Output, "sweep.work")
	}
	if s.name != s.src { // a directory of a cache
		return modelName(s.src) + ".sweep"
	}
	path, err := filepath.Abs(s.src)
	if err != nil {
		path = s.src
	}
	return filepath.Base(path) + ".sweep"
}

func (s *sweep) checkPaths() error {
	o := &s.o
	var set files.Set
	set.Input("the checkpoint", checkpointFiles(s.src)...)
	for i, name := range o.Files {
		if slices.Contains(o.Files[:i], name) {
			return optionf("", "%s is there twice: name each file once", name)
		}
		if remote.IsRemote(name) {
			continue
		}
		if _, err := os.Stat(name); err != nil {
			return err
		}
		if err := checkOrder(s.src, name); err != nil {
			return err
		}
		set.Input("the file", checkpointFiles(name)...)
	}
	for i := range o.Recipes {
		r := &o.Recipes[i]
		set.Input("a recipe", r.File)
		set.Input("the calibration text", named(r.Recipe.Calibrate))
		set.Input("the text to tune on", named(r.Recipe.TuneText))
		set.Input("the importance matrix", r.Recipe.Imatrix...)
		for _, name := range r.Recipe.Lora {
			set.Input("the adapter", lora.Files(name)...)
		}
		if o.Output != "" {
			set.Output("output", "the file of recipe "+r.Name, filepath.Join(o.Output, r.Name+".gqf"))
		}
	}
	o.Measure.addPaths(&set)
	set.OutputTree("output", "the working directory", s.workPath())
	set.Output("report", "a report", s.reports...)
	if err := collisions(&set); err != nil {
		return err
	}
	if o.Output == "" || isDirectory(o.Output) {
		return nil
	}
	switch _, err := os.Stat(o.Output); {
	case err == nil:
		return optionf("output", "%s is not a directory: a sweep writes its files into one", o.Output)
	case !errors.Is(err, os.ErrNotExist):
		return err
	case !isDirectory(filepath.Dir(filepath.Clean(o.Output))):
		return fmt.Errorf("%s: the directory %s does not exist", o.Output, filepath.Dir(filepath.Clean(o.Output)))
	}
	return nil
}

// cleanUp ends the job with the error err. After a finished job the working directory stays with
// the files, with their hashes and figures. It is removed if the files are not kept.
func (s *sweep) cleanUp(err error) error {
	switch {
	case err == nil && s.o.Output == "":
		return s.work.Remove()
	case err == nil:
		err = s.work.Retain(func(name string) bool {
			return strings.HasPrefix(name, madePrefix) || strings.HasPrefix(name, measuredPrefix)
		})
		_, closed := s.work.Close()
		return cmp.Or(err, closed)
	}
	kept, closed := s.work.Close()
	if closed != nil || !kept {
		return err
	}
	return &ResumeError{err, []string{fmt.Sprintf("what is finished is in %s: the same command goes on from there", s.work.Path())}}
}

// plan finds out whether each recipe suits the checkpoint, and what identifies its file.
func (s *sweep) plan() error {
	ck, err := safetensors.Open(s.src, safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	s.bytes = ck.DataBytes()
	assets, err := assetHashes(ck.Dir())
	if err != nil {
		return err
	}
	for i := range s.o.Recipes {
		key, err := s.key(i, ck, assets)
		if err != nil {
			return fmt.Errorf("recipe %s: %w", s.o.Recipes[i].Name, err)
		}
		s.keys = append(s.keys, key)
	}
	return nil
}

// key plans the file of recipe i, and hashes everything that the file depends on.
func (s *sweep) key(i int, ck *safetensors.Checkpoint, assets []any) (string, error) {
	recipe := s.o.Recipes[i].Recipe
	var inputs []string // hashes of the files that the recipe names
	names := append([]string{named(recipe.Calibrate), named(recipe.TuneText)}, recipe.Imatrix...)
	for _, name := range recipe.Lora {
		names = append(names, lora.Files(name)...)
	}
	for _, name := range names {
		hash := ""
		if name != "" {
			var err error
			if _, hash, err = workdir.SHA256(s.ctx, name); err != nil {
				return "", err
			}
		}
		inputs = append(inputs, hash)
	}
	t := task{o: QuantizeOptions{Recipe: recipe, Threads: s.o.Measure.Threads}}
	err := t.complete("sweep.gqf")
	if err == nil {
		err = t.check(s.ctx)
	}
	if err != nil {
		return "", err
	}
	r := newRun(s.ctx, nil)
	defer r.close()
	j, err := r.planJob(&t, &input{Source: &location.Source{Name: s.src, Path: s.src}, ck: ck})
	if err != nil {
		return "", err
	}
	s.bytes = j.source.plan.SourceBytes
	// 2: the version of the entry.
	return workdir.Key("sweep", 2, s.recipes[i], inputs, j.source.plan.SourceStamps(), assets)
}
