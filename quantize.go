package gq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/job/alloc"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/quantizer"
)

// Quantize turns the checkpoint src into the file dst, .gqf or .gguf, or into the directory dst
// with a checkpoint in a format of another library. The output appears when it is complete. src is
// a .safetensors file, a directory, or a GGUF file, with unquantized weights, or a remote name (see
// [Pull]). If the file does not meet the gate of o.Measure, Quantize returns the report and a
// *GateNotMetError. If the job leaves finished work, the error is a *ResumeError.
func Quantize(ctx context.Context, src, dst string, o QuantizeOptions) (*QuantizeReport, error) {
	return quantize(ctx, src, dst, task{o: o})
}

func quantize(ctx context.Context, src, dst string, t task) (*QuantizeReport, error) {
	return inJob(ctx, src, dst, t, func(r *run, j *job) (*QuantizeReport, error) {
		v, err := j.do(r)
		return v.report, err
	})
}

// do runs the steps of the job, or in a dry run the steps before the file. The recipe is saved when
// all that it states is known.
func (j *job) do(r *run) (*values, error) {
	v, saved := &values{source: j.source}, false
	for _, s := range steps() {
		if s.file && !saved {
			if err := j.saveRecipe(v); err != nil || !j.writes() {
				return v, err
			}
			saved = true
		}
		if at := (view{j, v.subject()}); s.make == nil || s.runs(at) == 0 {
			continue
		}
		if err := s.do(r, j, v); err != nil {
			return v, err
		}
	}
	return v, nil
}

// do finds the value of the step, or makes and keeps the value. A plan finds values of steps that
// it does not run.
func (s step) do(r *run, j *job, v *values) error {
	runs := view{j, v.subject()}.times(s) > 0
	if s.key == nil {
		if !runs {
			return nil
		}
		return s.make(r, j, v)
	}
	parts, err := s.key(r, j, v)
	if err != nil {
		return err
	}
	key, err := workdir.Key(parts...)
	if err != nil {
		return err
	}
	name, earlier := s.keeps[0], cmp.Or(j.shared, workdir.Peek(j.to.Path+s.dir))
	if earlier.GetJSON(name, key, s.entry(v)) {
		suits, err := s.use(r, j, v, func(what string) { r.resumed(earlier, "%s", what) })
		if suits || err != nil {
			return err
		}
	}
	if !runs {
		return nil
	}
	if err := s.make(r, j, v); err != nil {
		return err
	}
	if err := r.dir(j, s.dir).PutJSON(name, key, s.entry(v)); err != nil {
		return err
	}
	_, err = s.use(r, j, v, func(string) {})
	return err
}

// writeFile is the step that writes the file, and measures it before it appears. The report is
// there with an error of the gate, too.
func writeFile(r *run, j *job, v *values) error {
	s := v.subject()
	if err := j.checkSize(s.plan, v.codes); err != nil {
		return err
	}
	to := &QuantizeReport{Allocation: v.bits, FoldChoice: v.fold, Tuning: v.tuning, NotRunnable: j.notRunnable()}
	add, end := r.begin(stageQuantize, "bytes", s.plan.WorkBytes())
	defer end()
	o := write.Options{Codes: v.codes, Progress: add}
	var kept error   // the gate's error, for a file that is kept
	if j.checked() { // shards are joined, and checkpoints read back, in a temporary file
		o.Check = func(temp string, written *write.Report) (err error) {
			end()
			to.Report = written
			kept, err = r.measure(j, s, temp, to)
			return err
		}
	}
	final, err := j.to.Write(r.ctx, s.plan.Job, o, r.told(), end)
	if final != nil {
		if to.Report != nil {
			final.Warnings = to.Warnings // of the plan and of measuring
		}
		to.Report, to.Written = final, true
	}
	if to.Report != nil {
		to.Warnings = append(to.Warnings, r.warnings...)
		to.WriteSeconds, to.Seconds = to.Seconds, time.Since(r.start).Seconds()
		// A rate makes sense if the job only writes.
		if to.BytesPerSecond = 0; !j.calibration.needed() && j.tuning == nil && j.foldsFor() == "" && j.o.Budget == nil && j.measured == nil {
			to.BytesPerSecond = float64(to.SourceBytes) / to.Seconds
		}
	}
	err = cmp.Or(err, kept)
	if _, unmet := errors.AsType[*GateNotMetError](err); err == nil || unmet {
		v.report = to
	}
	return err
}

// Plan describes the job of Quantize with the same arguments. It chooses bits for o.Budget only if
// o.SaveRecipe or o.CalibrateOut is set: this takes as long as in Quantize. Otherwise the report
// describes the work of the choice. If an interrupted Quantize has made the choice already, the
// report has it.
//
// Plan writes only o.SaveRecipe and, if bits or the fold are chosen, o.CalibrateOut. It removes the
// temporary files that it makes next to dst: the checkpoint of a GGUF file, folded checkpoints, and
// files that measure choices.
func Plan(ctx context.Context, src, dst string, o QuantizeOptions) (*PlanReport, error) {
	if o.Measure != nil {
		return nil, optionf("", "a plan writes nothing that could be measured")
	}
	return inJob(ctx, src, dst, task{o: o, dry: true}, func(r *run, j *job) (*PlanReport, error) {
		if o.CalibrateOut != "" && !j.choosesOnText() {
			return nil, optionf("calibrate-out", "has no text to write: a plan needs none, unless it chooses bits or the fold")
		}
		v, err := j.do(r)
		if err != nil {
			return nil, err
		}
		at := view{job: j, subject: v.subject()}
		p := newPlanReport(at.plan.Job)
		p.Allocation, p.FoldChoice, p.Estimate = v.bits, v.fold, at.estimate()
		switch {
		case v.bits != nil:
			p.OutputBytes = v.bits.OutputBytes // with room for a description of calibration
		case o.Budget != nil:
			p.OutputBytes = 0
			of := at.bounds.outline
			p.Choice = &PlannedChoice{
				Tensors: of.Tensors, MinBits: of.MinBits, MaxBits: of.MaxBits, Groups: of.Groups,
				LeastBitsPerWeight: of.Least.BitsPerWeight, MostBitsPerWeight: of.Most.BitsPerWeight,
				LeastOutputBytes: of.Least.OutputBytes, MostOutputBytes: of.Most.OutputBytes,
				Tokens: at.choiceTokens(), Probes: of.Probes, Files: at.measuredFiles(alloc.MostEvaluations),
			}
		}
		p.Warnings = append(p.Warnings, r.warnings...)
		warnMisfit(&p.Warnings, j.source.config, func() (*tokenizer.Tokenizer, error) { return tokenizer.Open(j.source.ck.Dir()) })
		return p, nil
	})
}

// checkSize refuses a file that exceeds its target once its description of calibration and tuning
// is added.
func (j *job) checkSize(p *fromcheckpoint.Plan, c *plan.Codes) error {
	b := j.o.Budget
	if c == nil || b == nil || b.FileBytes == 0 {
		return nil
	}
	var t *provenance.Tuning
	if c.Tuned != nil {
		t = c.Tuned.Tuning
	}
	size, err := p.SizeWith(c.Calibration, t)
	if err == nil && size > b.FileBytes {
		err = fmt.Errorf("the file would have %d bytes with what it says of calibration, more than the %d of its target", size, b.FileBytes)
	}
	return err
}

// measure measures the complete file at temp before it appears. An error keeps it from appearing.
// unmet is the error of a gate that the file does not meet, if the file is kept nevertheless.
func (r *run) measure(j *job, s *subject, temp string, to *QuantizeReport) (unmet, err error) {
	if j.textCalibrated() {
		if err := r.heldOut(j, s, temp, to); err != nil {
			return nil, err
		}
	}
	if j.measured == nil {
		return nil, nil
	}
	err = withModel(r.ctx, temp, j.o.Threads, stages{}, func(file readable) (err error) {
		m := *j.measured
		m.Source, m.SourceName, m.File, m.View, m.Imported = j.path, j.name, file.path, file.view, file.imported
		if s.ck != j.source.ck {
			m.Folded = s.ck.Dir()
		}
		to.Accuracy, err = j.o.Measure.run(r.ctx, &m, r.stages)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = Verdict(to.Accuracy)
	if gate, ok := errors.AsType[*GateNotMetError](err); ok {
		gate.Output, gate.Kept = j.to.Name, j.o.Keep
		if j.o.Keep {
			return gate, nil
		}
	}
	return nil, err
}

// saveRecipe writes everything that decides the bytes of the file, if o.SaveRecipe is set.
func (j *job) saveRecipe(v *values) error {
	if j.o.SaveRecipe == "" {
		return nil
	}
	r := v.source.opts.Recipe
	if k := j.calibration; !k.needed() {
		// Only the choice of bits needed a text, and the rules record it.
		r.Calibrate, r.CalibrateTokens, r.Refine, r.Imatrix = "", 0, nil, nil
	} else {
		if k.solved {
			r.Refine = new(k.refine)
		}
		if r.Calibrate != "" {
			r.CalibrateTokens = k.tokens
		}
	}
	selfTuned := false
	if k := j.tuning; k != nil {
		r.Tune, r.TuneTokens, selfTuned = k.kind, k.tokens, k.self
		if selfTuned {
			r.TuneText = quantizer.Self
		}
	}
	r.Seed = 0
	if r.Rotate || r.Calibrate == quantizer.Self || j.calibration.own > 0 || selfTuned {
		r.Seed = j.seed()
	}
	comment := j.o.Budget.comment(v.bits)
	if v.fold != nil {
		comment += "\nfold auto: " + v.fold.String()
	}
	rules := v.source.opts.Rules
	if v.bits != nil {
		rules = slices.Concat(v.bits.Rules, rules)
	}
	text, err := r.YAML(comment, rules)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(j.o.SaveRecipe, text)
}
