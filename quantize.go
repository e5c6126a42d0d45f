package gq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// QuantizeOptions are the options of Quantize and Plan. The zero value is ready to use.
type QuantizeOptions struct {
	// Recipe decides the bytes of the file; see quantizer.Recipe for its defaults.
	Recipe quantizer.Recipe
	// Rules precede the recipe's own. Default: none.
	Rules []quantizer.Rule
	// Budget chooses bits, groups and mappings tensor by tensor. Default (nil): the recipe's.
	Budget *Budget
	// Format is the format of the file. Default (FormatByName): FormatGGUF if the file's name ends in
	// .gguf, else FormatGQF. A name that ends in another format's name is refused. The formats of
	// checkpoints make a directory. The recipe's target for a format other than .gqf is the format's
	// own, its default there.
	Format Format
	// Pre is llama.cpp's name of the pre-tokenizer, for a .gguf file. It overrides the recipe's.
	// Default (""): found by the tokenizer's ids of llama.cpp's test text.
	Pre string
	// Split is the greatest size of a .gguf file, or of the tensors in a file of a checkpoint: a larger
	// model is divided into shards. Default (0): one .gguf file; 5 GB for a checkpoint, as
	// Transformers.
	Split int64
	// RecipeFile is the file that Recipe was read from, which no output may replace. Default: none.
	RecipeFile string
	// SaveRecipe names a file for the recipe that was used, with a rule for each tensor whose bits
	// were chosen. The saved recipe gives the same file again. Default: none.
	SaveRecipe string
	// ImatrixOut names a file for the importance matrix that the algorithm imatrix used. Default:
	// none.
	ImatrixOut string
	// CalibrateOut names a file for the text of calibration or of the choice of bits: plain text, or
	// token ids if the name ends in .ids. Default: none.
	CalibrateOut string
	// Measure measures the file before it appears. If Measure has a gate, the file appears only if
	// it meets the gate. Default (nil): no measurement.
	Measure *MeasureOptions
	// Requantize accepts a GGUF file or a checkpoint whose weights are quantized, and quantizes them once
	// more. Default: false.
	Requantize bool
	// Keep writes the file even if it does not meet the gate. Default: false.
	Keep bool
	// Threads is how many workers run. Default (0): GOMAXPROCS. The file does not depend on it.
	Threads int
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// PlanReport describes a job of Quantize, Repack or Export.
type PlanReport struct {
	Tensors  []*conversion.PlanTensor `json:"tensors"`
	Warnings []string                 `json:"warnings"`
	// OutputBytes is the exact size of the file, SourceBytes the size of the tensors of the
	// checkpoint.
	OutputBytes int64 `json:"output_bytes"`
	SourceBytes int64 `json:"source_bytes"`
	// Estimate is the expected time and memory; nil for Repack.
	Estimate *Estimate `json:"estimate,omitempty"`
	// Fold says how the checkpoint is folded first; nil if it is not.
	Fold *conversion.Fold `json:"fold,omitempty"`
	// FoldChoice says how fold auto was resolved; nil if the recipe states a fold.
	FoldChoice *FoldChoice `json:"fold_choice,omitempty"`
	// Allocation holds the choices for a Budget; nil without one.
	Allocation *Allocation `json:"allocation,omitempty"`
}

func newPlanReport(p *conversion.Plan) *PlanReport {
	return &PlanReport{Tensors: p.Tensors, Warnings: p.Warnings, OutputBytes: p.OutputBytes, SourceBytes: p.SourceBytes, Fold: p.Fold}
}

// QuantizeReport is the result of Quantize.
type QuantizeReport struct {
	*conversion.Report
	// Written reports whether the file was written. It is not if it does not meet its gate.
	Written bool `json:"written"`
	// FoldChoice says how fold auto was resolved; nil if the recipe states a fold.
	FoldChoice *FoldChoice `json:"fold_choice,omitempty"`
	// Allocation holds the choices for a Budget; nil without one.
	Allocation *Allocation `json:"allocation,omitempty"`
	// Tuning says what tuning gained; nil without.
	Tuning *TuningReport `json:"tuning,omitempty"`
	// HeldOut is the loss of a file that was calibrated with text. It is nil for other files, for
	// which the report has the SQNR.
	HeldOut *HeldOut `json:"held_out,omitempty"`
	// Accuracy is the measurement; nil without QuantizeOptions.Measure.
	Accuracy *accuracy.Report `json:"accuracy,omitempty"`
	// WriteSeconds is the time to write the file, a part of the report's Seconds for the whole job.
	// The report's BytesPerSecond is 0 if the job did more than write: calibrate, fold, choose bits
	// or measure.
	WriteSeconds float64 `json:"write_seconds"`
	// NotRunnable says why gq cannot run the model in the file; "" if it can.
	NotRunnable string `json:"not_runnable,omitempty"`
}

// Quantize turns the checkpoint src into the file dst, .gqf or .gguf, or into the directory dst with a
// checkpoint in a format of another library, which appears when it is complete. src is a .safetensors
// file, a directory, or a GGUF file, with unquantized weights. If the file does not meet the gate of
// o.Measure, Quantize returns the report and a *GateNotMetError. If the job leaves finished work, the
// error is a *ResumeError.
func Quantize(ctx context.Context, src, dst string, o QuantizeOptions) (*QuantizeReport, error) {
	return inJob(ctx, src, dst, o, false, (*quantizeJob).quantize)
}

// Plan describes the job of Quantize with the same arguments. It writes only the checkpoint of a
// GGUF file and a folded checkpoint, which it removes again, and o.SaveRecipe.
func Plan(ctx context.Context, src, dst string, o QuantizeOptions) (*PlanReport, error) {
	if o.Measure != nil {
		return nil, optionf("", "a plan writes nothing that could be measured")
	}
	return inJob(ctx, src, dst, o, true, func(j *quantizeJob) (*PlanReport, error) {
		r := newPlanReport(j.plan)
		if r.Allocation = j.chosen; j.chosen != nil {
			r.OutputBytes = j.chosen.OutputBytes // with room for a description of calibration
		}
		r.Warnings = append(r.Warnings, j.warnings...)
		if j.folding != nil {
			r.FoldChoice = j.folding.choice
		}
		r.Estimate = j.estimate()
		return r, nil
	})
}

// quantizeJob is a running Quantize or Plan.
type quantizeJob struct {
	ctx   context.Context
	o     QuantizeOptions
	src   string // as the caller names it
	dst   string
	dry   bool // nothing is written
	start time.Time
	stages
	measured *accuracy.Job // nil: no measurement

	// The checkpoint; after folding the folded one.
	ck     *safetensors.Checkpoint
	config []byte
	opts   conversion.Options
	plan   *conversion.Plan

	original    *conversion.Plan // of the checkpoint before folding
	calibration *calibration     // nil: no algorithm needs it
	tuning      *tuning          // nil: none
	folding     *folding         // nil: the checkpoint stays as it is
	chosen      *Allocation      // nil: no budget
	written     atomic.Pointer[func(int64)]
	unmet       error // the gate's error, for a file that is kept

	foreign  *conversion.Foreign   // the source, if it is a GGUF file or quantized already; nil: a checkpoint
	imported *workdir.Dir          // the checkpoint that is made of foreign
	source   []conversion.Source   // the files of foreign
	work     *workdir.Dir          // finished parts of a long job; nil: none are stored
	texts    map[string]*text.Text // by their keys
	shown    bool                  // the text was examined and written to o.CalibrateOut
	warnings []string              // about the text

	degenerate map[string]bool // the options of degenerate texts, see warnDegenerate
}

// inJob prepares a job, calls end and cleans up.
func inJob[T any](ctx context.Context, src, dst string, o QuantizeOptions, dry bool, end func(*quantizeJob) (T, error)) (result T, err error) {
	if dst == "" {
		return result, optionf("output", "the path is empty: name a file, or a directory for a checkpoint")
	}
	o.Recipe = o.Recipe.WithQuality()
	if err := o.resolveFormat(dst); err != nil {
		return result, err
	}
	if o.Format.IsDirectory() {
		dst = filepath.Clean(dst) // the names of other files begin with it
	}
	j := &quantizeJob{ctx: ctx, o: o, src: src, dst: dst, dry: dry, start: time.Now(), stages: stages{to: o.Progress}}
	if j.foreign, err = openForeign(src); err != nil {
		return result, err
	}
	if j.foreign != nil {
		defer j.foreign.Close()
	}
	if err := j.check(); err != nil {
		return result, err
	}
	if j.foreign != nil {
		dir, err := j.importSource()
		if err != nil {
			return result, j.cleanUp(err)
		}
		if j.measured != nil {
			j.measured.Source, j.measured.SourceName = dir, src
		}
		src = dir
	}
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return result, j.cleanUp(err)
	}
	defer ck.Close()
	if j.foreign == nil && o.Requantize {
		return result, optionf("requantize", "goes with a .gguf file, or a checkpoint whose weights are quantized; %s is not quantized", src)
	}
	if err = j.open(ck); err == nil {
		if err = j.openWork(); err == nil {
			if err = j.prepare(); err == nil {
				result, err = end(j)
			}
		}
	}
	return result, j.cleanUp(err)
}

// resolveFormat settles the format of the file, and the target of a .gguf file.
func (o *QuantizeOptions) resolveFormat(dst string) error {
	if o.Format == FormatByName {
		o.Format = FormatGQF
		if strings.EqualFold(filepath.Ext(dst), ".gguf") {
			o.Format = FormatGGUF
		}
	}
	if _, err := ParseFormat(string(o.Format)); err != nil {
		return &OptionError{"format", err}
	}
	if err := checkEnding(dst, o.Format, ""); err != nil {
		return err
	}
	target, err := o.formatTarget(dst)
	if err != nil || target == nil {
		return err
	}
	r := &o.Recipe
	switch {
	case len(r.Layouts) > 0 || r.Tile != packing.Tile{}:
		return optionf("", "%s has layouts of its own: state neither layout nor tile", o.Format.noun())
	case len(r.Targets) == 0:
		r.Targets = []quantizer.Target{*target}
	case r.Targets[0].Name != target.Name:
		return optionf("target", "%s has no place in %s: leave it out, or write a .gqf file", quantizer.TargetNames(r.Targets), o.Format.noun())
	}
	r.Pre = cmp.Or(o.Pre, r.Pre) // for the saved recipe
	return nil
}

// formatTarget is the target of the format; nil for a .gqf file. It refuses options of other formats.
func (o *QuantizeOptions) formatTarget(dst string) (*quantizer.Target, error) {
	format, checkpoint := o.Format.checkpoint()
	switch pre := o.Recipe.Pre != "" || o.Pre != ""; {
	case o.Split < 0:
		return nil, optionf("split", "%d: at least 1", o.Split)
	case o.Format == FormatGQF && (pre || o.Split != 0):
		return nil, optionf("", "split and pre have no meaning for a .gqf file, and %s is one", dst)
	case o.Format == FormatGQF:
		return nil, nil
	case o.Format == FormatGGUF:
		return &quantizer.TargetGGUF, nil
	case checkpoint && pre:
		return nil, optionf("pre", "it is for .gguf files, and %s is %s", dst, o.Format.noun())
	}
	target, _ := quantizer.CheckpointTarget(format)
	return &target, nil
}

// setFormat sets the options of a plan that follow from the format.
func (o *QuantizeOptions) setFormat(to *conversion.Options) {
	if f, ok := o.Format.checkpoint(); ok {
		to.Checkpoint = &conversion.CheckpointOptions{Format: f, Split: o.Split}
	}
	if o.Format == FormatGGUF {
		to.GGUF = &conversion.GGUFOptions{Pre: o.Recipe.Pre, Split: o.Split}
	}
}

// check finds invalid options before the checkpoint is read.
func (j *quantizeJob) check() (err error) {
	// The plan makes its own set of rules; this one finds contradictions before any work.
	if _, err := quantizer.NewRuleSet(j.o.Recipe, j.o.Rules); err != nil {
		return &OptionError{Err: err}
	}
	if j.o.Threads < 0 {
		return optionf("threads", "%d: at least 1", j.o.Threads)
	}
	if err := j.checkPaths(); err != nil {
		return err
	}
	if m := j.o.Measure; m != nil {
		if j.measured, err = m.job(j.ctx); err != nil {
			return err
		}
		j.measured.Source, j.measured.Name, j.measured.Parity = j.src, j.dst, true
	}
	if b := j.o.Budget; b != nil && len(b.Groups) > 0 && j.o.Recipe.ForGGUF() {
		return optionf("group", "beside a target of bytes or divergence: the types of GGUF files, which are chosen, have groups of their own")
	}
	return j.o.Budget.check()
}

// open makes the plan of the checkpoint before folding.
func (j *quantizeJob) open(ck *safetensors.Checkpoint) (err error) {
	j.ck = ck
	if j.config, err = conversion.ReadConfig(ck); err != nil {
		return err
	}
	j.opts = conversion.Options{
		Recipe: j.o.Recipe, Rules: j.o.Rules, Threads: j.o.Threads, Sources: j.source,
		Progress: func(n int64) {
			if add := j.written.Load(); add != nil {
				(*add)(n)
			}
		},
	}
	j.o.setFormat(&j.opts)
	if j.plan, err = conversion.NewPlan(j.ck, j.config, j.opts); err != nil {
		return err
	}
	j.original = j.plan
	if j.calibration, err = j.newCalibration(); err != nil {
		return err
	}
	if j.tuning, err = j.newTuning(); err != nil {
		return err
	}
	if j.folding, err = j.newFolding(); err != nil {
		return err
	}
	j.stages.plan = j.plannedStages(j.dry)
	if j.o.Budget != nil {
		return j.feasible()
	}
	return nil
}

// The stages of Quantize. Measure has further stages.
const (
	stageText      = "writing text"
	stageFold      = "folding"
	stageProbe     = "probing tensors"
	stageCalibrate = "calibrating"
	stageQuantize  = "quantizing"
)

// prepare folds the checkpoint and chooses bits, as the options ask.
func (j *quantizeJob) prepare() error {
	if j.folding != nil {
		if err := j.folding.run(); err != nil {
			return err
		}
		j.ck, j.config, j.opts = j.folding.ck, j.folding.config, j.folding.opts
		var err error
		if j.plan, err = conversion.NewPlan(j.ck, j.config, j.opts); err != nil {
			return err
		}
		if j.measured != nil && j.folding.folded != nil {
			j.measured.Folded = j.ck.Dir()
		}
		if j.o.Budget != nil { // an untied lm_head takes more now
			if err := j.feasible(); err != nil {
				return err
			}
		}
	}
	rules := j.opts.Rules
	if j.o.Budget != nil {
		var err error
		if j.chosen, err = j.choose(); err != nil {
			return err
		}
		j.plan, rules = j.chosen.Plan, append(j.chosen.Rules, rules...)
	}
	return j.saveRecipe(rules)
}

// saveRecipe writes everything that decides the bytes of the file, if o.SaveRecipe is set. rules
// precede the recipe's own; they include the chosen ones.
func (j *quantizeJob) saveRecipe(rules []quantizer.Rule) error {
	if j.o.SaveRecipe == "" {
		return nil
	}
	r := j.opts.Recipe
	if k := j.calibration; k == nil {
		// Only the choice of bits needed a text, and the rules record it.
		r.Calibrate, r.CalibrateTokens, r.Refine, r.Imatrix = "", 0, nil, nil
	} else {
		if k.solved {
			r.Refine = new(k.refine())
		}
		if r.Calibrate != "" {
			r.CalibrateTokens = k.tokens()
		}
	}
	selfTuned := false
	if k := j.tuning; k != nil {
		r.Tune, r.TuneTokens, r.TuneText = k.kind, k.tokens(), cmp.Or(r.TuneText, quantizer.Self)
		selfTuned = r.TuneText == quantizer.Self
	}
	r.Seed = 0
	if r.Rotate || r.Calibrate == quantizer.Self || selfTuned {
		r.Seed = j.seed()
	}
	comment := j.o.Budget.comment(j.chosen)
	if j.folding != nil && j.folding.choice != nil {
		comment += "\nfold auto: " + j.folding.choice.String()
	}
	text, err := r.YAML(comment, rules)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(j.o.SaveRecipe, text)
}

// quantize chooses codes and writes the file.
func (j *quantizeJob) quantize() (*QuantizeReport, error) {
	r := &QuantizeReport{Allocation: j.chosen, NotRunnable: j.notRunnable()}
	if j.folding != nil {
		r.FoldChoice = j.folding.choice
	}
	var write conversion.WriteOptions
	done, err := j.chooseCodes(&write, r)
	if err != nil {
		return nil, err
	}
	defer done()
	add, end := j.begin(stageQuantize, "bytes", j.plan.WorkBytes())
	j.written.Store(&add)
	defer end()
	if j.measured != nil || j.textCalibrated() { // a shard or a checkpoint is written a second time for it
		write.Check = func(temp string, written *conversion.Report) error {
			end()
			r.Report = written
			return j.measure(temp, r)
		}
	}
	final, err := j.plan.WriteWith(j.ctx, j.dst, write)
	if final != nil {
		if r.Report != nil {
			final.Warnings = r.Warnings // of the plan and of measuring
		}
		r.Report, r.Written = final, true
	}
	if r.Report != nil {
		r.Warnings = append(r.Warnings, j.warnings...)
	}
	if r.Report != nil {
		r.WriteSeconds, r.Seconds = r.Seconds, time.Since(j.start).Seconds()
		if r.BytesPerSecond = 0; j.onlyWrites() {
			r.BytesPerSecond = float64(r.SourceBytes) / r.Seconds
		}
	}
	if unmet, ok := errors.AsType[*GateNotMetError](cmp.Or(err, j.unmet)); ok {
		return r, unmet
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// chooseCodes calibrates and tunes, as the recipe asks. done must be called when the codes are
// written.
func (j *quantizeJob) chooseCodes(write *conversion.WriteOptions, r *QuantizeReport) (done func(), err error) {
	done = func() {}
	if j.calibration != nil {
		if write.Codes, done, err = j.calibration.run(j.plan); err != nil {
			return nil, err
		}
	}
	if j.tuning != nil {
		if write.Codes, r.Tuning, err = j.tuning.run(write.Codes); err != nil {
			done()
			return nil, err
		}
	}
	if c := write.Codes; c != nil {
		err = j.checkSize(c)
	}
	if err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// checkSize refuses a file that exceeds its target once its description of calibration and tuning
// is added.
func (j *quantizeJob) checkSize(c *conversion.CalibratedCodes) error {
	b := j.o.Budget
	if b == nil || b.FileBytes == 0 {
		return nil
	}
	var t *conversion.Tuning
	if c.Tuned != nil {
		t = c.Tuned.Tuning
	}
	size, err := j.plan.SizeWith(c.Calibration, t)
	if err == nil && size > b.FileBytes {
		err = fmt.Errorf("the file would have %d bytes with what it says of calibration, more than the %d of its target", size, b.FileBytes)
	}
	return err
}

// onlyWrites reports whether the job only writes a file, so that a rate makes sense.
func (j *quantizeJob) onlyWrites() bool {
	return j.calibration == nil && j.tuning == nil && j.folding == nil && j.chosen == nil && j.measured == nil
}

// textCalibrated reports whether codes were chosen on a text: the loss is then measured on another one.
func (j *quantizeJob) textCalibrated() bool {
	return j.calibration != nil && j.o.Recipe.Calibrate != ""
}

// measure measures the complete file at temp before it appears. An error keeps it from appearing.
func (j *quantizeJob) measure(temp string, r *QuantizeReport) (err error) {
	if j.textCalibrated() {
		if err := j.calibration.heldOut(temp, r); err != nil {
			return err
		}
	}
	if j.measured == nil {
		return nil
	}
	err = withGQF(j.ctx, temp, j.o.Threads, stages{}, func(file string, im *accuracy.Imported) error {
		j.measured.File, j.measured.Imported = file, im
		r.Accuracy, err = j.o.Measure.run(j.ctx, j.measured, j.stages)
		return err
	})
	if err != nil {
		return err
	}
	err = Verdict(r.Accuracy)
	if unmet, ok := errors.AsType[*GateNotMetError](err); ok {
		unmet.Output, unmet.Kept = j.dst, j.o.Keep
		if j.o.Keep {
			j.unmet = unmet
			return nil
		}
	}
	return err
}
