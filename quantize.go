package gq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// QuantizeOptions are the options of Quantize and Plan. The zero value is good.
type QuantizeOptions struct {
	// Recipe holds what decides the bytes of the file; see quantizer.Recipe for its defaults.
	Recipe quantizer.Recipe
	// Rules come before the recipe's own. Default: none.
	Rules []quantizer.Rule
	// Budget has bits and groups chosen tensor by tensor. Default (nil): they are the recipe's.
	Budget *Budget
	// RecipeFile is the file that Recipe was read from, if it was: no output replaces it. Default: none.
	RecipeFile string
	// SaveRecipe names a file for the recipe as it was used, with a rule for each tensor whose bits were chosen: it gives
	// the same file again. Default: none.
	SaveRecipe string
	// ImatrixOut names a file for the second moments that the algorithm imatrix used. Default: none.
	ImatrixOut string
	// Measure has the file measured before it appears. If Measure has a gate, the file appears only if it meets the gate.
	// Default (nil): no measurement.
	Measure *MeasureOptions
	// Keep writes the file although it does not meet the gate. Default: false.
	Keep bool
	// Threads is how many workers run. Default (0): GOMAXPROCS. The file does not depend on it.
	Threads int
	// Progress is told how far the job has come. Default (nil): nobody.
	Progress Progress
}

// PlanReport is a job of Quantize or Repack laid out.
type PlanReport struct {
	Tensors  []*conversion.PlanTensor `json:"tensors"`
	Warnings []string                 `json:"warnings"`
	// OutputBytes is the exact size of the file, SourceBytes the size of the tensors of the checkpoint.
	OutputBytes int64 `json:"output_bytes"`
	SourceBytes int64 `json:"source_bytes"`
	// Estimate is what the job will probably take; nil for Repack.
	Estimate *Estimate `json:"estimate,omitempty"`
	// Fold says how the checkpoint is folded first; nil if it is not.
	Fold *conversion.Fold `json:"fold,omitempty"`
	// Allocation is what a Budget chose; nil without one.
	Allocation *Allocation `json:"allocation,omitempty"`
}

func newPlanReport(p *conversion.Plan) *PlanReport {
	return &PlanReport{Tensors: p.Tensors, Warnings: p.Warnings, OutputBytes: p.OutputBytes, SourceBytes: p.SourceBytes, Fold: p.Fold}
}

// QuantizeReport is what Quantize did.
type QuantizeReport struct {
	*conversion.Report
	// Written tells whether the file is there: not if it does not meet its gate.
	Written bool `json:"written"`
	// Allocation is what a Budget chose; nil without one.
	Allocation *Allocation `json:"allocation,omitempty"`
	// HeldOut is the loss of a file that was calibrated with text; nil for others, whose loss is the report's SQNR.
	HeldOut *HeldOut `json:"held_out,omitempty"`
	// Accuracy is the measurement; nil without QuantizeOptions.Measure.
	Accuracy *accuracy.Report `json:"accuracy,omitempty"`
	// WriteSeconds is how long the writing of the file took, of the report's Seconds, which are those of the whole job. The
	// report's BytesPerSecond are 0 if the job did more than write: calibrate, fold, choose bits or measure.
	WriteSeconds float64 `json:"write_seconds"`
	// NotRunnable says why gq cannot run the model in the file; "" if it can.
	NotRunnable string `json:"not_runnable,omitempty"`
}

// Quantize turns the checkpoint src, a .safetensors file or a directory, into the .gqf file dst. The file appears when
// it is complete. If it does not meet the gate of o.Measure, the error is a *GateNotMetError beside the report. If the
// job leaves work to go on from, the error is a *ResumeError.
func Quantize(ctx context.Context, src, dst string, o QuantizeOptions) (*QuantizeReport, error) {
	return inJob(ctx, src, dst, o, false, (*quantizeJob).quantize)
}

// Plan lays out the job that Quantize does with the same arguments, and writes nothing but a folded checkpoint, which
// it removes again.
func Plan(ctx context.Context, src, dst string, o QuantizeOptions) (*PlanReport, error) {
	if o.Measure != nil {
		return nil, optionf("", "a plan writes nothing that could be measured")
	}
	return inJob(ctx, src, dst, o, true, func(j *quantizeJob) (*PlanReport, error) {
		r := newPlanReport(j.plan)
		if r.Allocation = j.chosen; j.chosen != nil {
			r.OutputBytes = j.chosen.OutputBytes // with room for an account of calibration
		}
		r.Estimate = j.estimate()
		return r, nil
	})
}

// quantizeJob is a running Quantize or Plan.
type quantizeJob struct {
	ctx   context.Context
	o     QuantizeOptions
	dst   string
	dry   bool // nothing is written
	start time.Time
	stages
	measured *accuracy.Job // nil: no measurement

	// The checkpoint, or the folded one once there is one.
	ck     *safetensors.Checkpoint
	config []byte
	opts   conversion.Options
	plan   *conversion.Plan

	original    *conversion.Plan // of the checkpoint as it was before it was folded
	calibration *calibration     // nil: no algorithm needs it
	folding     *folding         // nil: the checkpoint stays as it is
	chosen      *Allocation      // nil: no budget
	written     atomic.Pointer[func(int64)]
	unmet       error // the gate's, for a file that is kept all the same

	work  *workdir.Dir          // what is finished of a long job; nil: nothing is kept
	texts map[string]*text.Text // by their keys
}

// inJob prepares a job, calls end and cleans up.
func inJob[T any](ctx context.Context, src, dst string, o QuantizeOptions, dry bool, end func(*quantizeJob) (T, error)) (result T, err error) {
	o.Recipe = o.Recipe.WithQuality()
	j := &quantizeJob{ctx: ctx, o: o, dst: dst, dry: dry, start: time.Now(), stages: stages{to: o.Progress}}
	if err := j.check(src); err != nil {
		return result, err
	}
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return result, err
	}
	defer ck.Close()
	if err := j.open(ck); err != nil {
		return result, err
	}
	if err = j.openWork(); err == nil {
		if err = j.prepare(); err == nil {
			result, err = end(j)
		}
	}
	return result, j.cleanUp(err)
}

// check finds options that cannot be used, before the checkpoint is read.
func (j *quantizeJob) check(src string) (err error) {
	// The plan makes its own set of rules; this one finds before any work what cannot go together.
	if _, err := quantizer.NewRuleSet(j.o.Recipe, j.o.Rules); err != nil {
		return &OptionError{Err: err}
	}
	if j.o.Threads < 0 {
		return optionf("threads", "%d: at least 1", j.o.Threads)
	}
	if err := j.checkPaths(src); err != nil {
		return err
	}
	if m := j.o.Measure; m != nil {
		if j.measured, err = m.job(j.ctx); err != nil {
			return err
		}
		j.measured.Source, j.measured.Name, j.measured.Parity = src, j.dst, true
	}
	return j.o.Budget.check()
}

// open makes the plan of the checkpoint as it is.
func (j *quantizeJob) open(ck *safetensors.Checkpoint) (err error) {
	j.ck = ck
	if j.config, err = conversion.ReadConfig(ck); err != nil {
		return err
	}
	j.opts = conversion.Options{
		Recipe: j.o.Recipe, Rules: j.o.Rules, Threads: j.o.Threads,
		Progress: func(n int64) {
			if add := j.written.Load(); add != nil {
				(*add)(n)
			}
		},
	}
	if j.plan, err = conversion.NewPlan(j.ck, j.config, j.opts); err != nil {
		return err
	}
	j.original = j.plan
	if j.calibration, err = j.newCalibration(); err != nil {
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

// The stages of Quantize, beside those of Measure.
const (
	stageText      = "writing text"
	stageFold      = "folding"
	stageProbe     = "probing tensors"
	stageCalibrate = "calibrating"
	stageQuantize  = "quantizing"
)

// prepare folds the checkpoint and chooses bits, as far as that is wanted.
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
		if j.measured != nil {
			j.measured.Folded = j.ck.Dir()
		}
		if j.o.Budget != nil { // a head that was the embedding takes more now
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

// saveRecipe writes the recipe, if it is wanted, with all that decides the bytes of the file: rules are those before its
// own, the chosen ones among them.
func (j *quantizeJob) saveRecipe(rules []quantizer.Rule) error {
	if j.o.SaveRecipe == "" {
		return nil
	}
	r := j.opts.Recipe
	if k := j.calibration; k == nil {
		// A text was for the choice of bits, which is made.
		r.Calibrate, r.CalibrateTokens, r.Refine, r.Imatrix = "", 0, nil, nil
	} else {
		if k.solved {
			r.Refine = new(k.refine())
		}
		if r.Calibrate != "" {
			r.CalibrateTokens = k.tokens()
		}
	}
	r.Seed = 0
	if r.Rotate || r.Calibrate == quantizer.Self {
		r.Seed = j.seed()
	}
	text, err := r.YAML(j.o.Budget.comment(j.chosen), rules)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(j.o.SaveRecipe, text)
}

// quantize chooses codes and writes the file.
func (j *quantizeJob) quantize() (*QuantizeReport, error) {
	var write conversion.WriteOptions
	if j.calibration != nil {
		codes, done, err := j.calibration.run(j.plan)
		if err != nil {
			return nil, err
		}
		defer done()
		size, err := j.plan.SizeWith(codes.Calibration)
		if err != nil {
			return nil, err
		}
		if b := j.o.Budget; b != nil && b.FileBytes > 0 && size > b.FileBytes {
			return nil, fmt.Errorf("the file would have %d bytes with what it says of calibration, more than the %d of its target", size, b.FileBytes)
		}
		write.Codes = codes
	}
	add, end := j.begin(stageQuantize, "bytes", j.plan.WorkBytes())
	j.written.Store(&add)
	defer end()
	r := &QuantizeReport{Allocation: j.chosen, NotRunnable: j.notRunnable()}
	write.Check = func(temp string, written *conversion.Report) error {
		end()
		r.Report = written
		return j.measure(temp, r)
	}
	final, err := j.plan.WriteWith(j.ctx, j.dst, write)
	if final != nil {
		final.Warnings = r.Warnings // the plan's, and those of measuring
		r.Report, r.Written = final, true
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

// onlyWrites tells whether the job is the writing of a file, of which a rate makes sense.
func (j *quantizeJob) onlyWrites() bool {
	return j.calibration == nil && j.folding == nil && j.chosen == nil && j.measured == nil
}

// measure measures the complete file at temp before it appears. An error keeps it from appearing.
func (j *quantizeJob) measure(temp string, r *QuantizeReport) (err error) {
	if j.calibration != nil && j.o.Recipe.Calibrate != "" {
		if err := j.calibration.heldOut(temp, r); err != nil {
			return err
		}
	}
	if j.measured == nil {
		return nil
	}
	j.measured.File = temp
	if r.Accuracy, err = j.o.Measure.run(j.ctx, j.measured, j.stages); err != nil {
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
